import {type Chart, renderChart} from '../page/chart.ts'
import {count, dollars, figures} from '../page/figures.ts'
import {type Html, html} from '../page/html.ts'
import type {Rows} from './reader.ts'
import {isAmount, isNumber, renderRows} from './tables.ts'

/** What rows of a query can be shown as. */
export const SHAPES = ['table', 'number', 'line', 'area', 'bar'] as const

/** Rows in the shape that was asked for: of a chart the first column names the places, the numbers after it are series. */
export function renderShape(rows: Rows, shape: (typeof SHAPES)[number]): Html {
  if (shape === 'table' || rows.rows.length === 0) return renderRows(rows)
  if (shape === 'number')
    return figures(
      rows.columns.map((column, index) => {
        const value = rows.rows[0]?.[index] ?? null
        const text = value === null ? null : String(value)
        return {
          name: column.name.replaceAll('_', ' '),
          value: isAmount(column) ? dollars(text) : count(text),
          note: '',
        }
      }),
    )
  const series = rows.columns
    .map((column, index) => ({...column, index}))
    .filter((column) => column.index > 0 && isNumber(column))
  if (series.length === 0)
    return html`<p class="notice">A chart needs a column that names the places, and numbers after it. The rows as a table:</p>${renderRows(rows)}`
  const chart: Chart = {
    title: series.map(({name}) => name).join(', '),
    shape,
    unit: unitOf(series),
    places: rows.rows.map(([place]) => String(place ?? '–')),
    series: series.map(({name, index}) => ({
      name,
      values: rows.rows.map((row) => (row[index] === null ? null : Number(row[index]))),
    })),
  }
  return renderChart(chart)
}

function unitOf(columns: Rows['columns']): Chart['unit'] {
  if (columns.every(isAmount)) return 'usd'
  return columns.every(({name}) => name.includes('ltv')) ? 'ratio' : 'number'
}
