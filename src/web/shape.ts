import {type Chart, renderChart} from '../page/chart.ts'
import {count, dollars, figures} from '../page/figures.ts'
import {type Html, html} from '../page/html.ts'
import type {Rows} from './release-questions.ts'
import {isAmount, isNumber, renderRows} from './tables.ts'

/** What rows of a query can be shown as. */
export const SHAPES = ['table', 'number', 'line', 'area', 'bar'] as const

/**
 * Rows in the shape that was asked for. Of a chart the first column names the places; the numbers after it are series or, where places
 * come more than once, the values of the one text column are.
 */
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
  const drawn = readSeries(rows)
  if (typeof drawn === 'string')
    return html`<p class="notice">${drawn} The rows as a table:</p>${renderRows(rows)}`
  return renderChart({...drawn, shape})
}

/** Series that a chart can tell apart by colour. */
const MOST_SERIES = 7

/** What a chart of the rows shows, or why there is none. */
function readSeries({columns, rows}: Rows): Omit<Chart, 'shape'> | string {
  const [first, ...others] = columns.map((column, index) => ({...column, index}))
  const numbers = others.filter(isNumber)
  const texts = others.filter((column) => !isNumber(column))
  const [number] = numbers
  if (!first || !number) return 'A chart needs a column that names the places, and numbers after it.'
  const textAt = (row: Rows['rows'][number], index: number) => String(row[index] ?? '–')
  const valueAt = (row: Rows['rows'][number] | undefined, index: number) =>
    row === undefined || row[index] === null ? null : Number(row[index])
  const places = [...new Set(rows.map((row) => textAt(row, first.index)))]
  if (places.length === rows.length)
    return {
      title: numbers.map(({name}) => name).join(', '),
      unit: unitOf(numbers),
      places,
      series: numbers.map(({name, index}) => ({name, values: rows.map((row) => valueAt(row, index))})),
    }
  const [text] = texts
  if (!text || texts.length > 1 || numbers.length > 1)
    return `'${first.name}' has the same value in several rows: a chart needs one row for each, or beside it one text column, whose values are the series, and one number.`
  const names = [...new Set(rows.map((row) => textAt(row, text.index)))]
  if (names.length > MOST_SERIES)
    return `'${text.name}' has ${names.length} values: a chart can show ${MOST_SERIES} series.`
  const rowOf = new Map(
    rows.map((row) => [JSON.stringify([textAt(row, first.index), textAt(row, text.index)]), row]),
  )
  if (rowOf.size < rows.length)
    return `'${first.name}' and '${text.name}' have the same values in several rows: a chart needs one row for each.`
  return {
    title: `${number.name} by ${text.name}`,
    unit: unitOf([number]),
    places,
    series: names.map((name) => ({
      name,
      values: places.map((place) => valueAt(rowOf.get(JSON.stringify([place, name])), number.index)),
    })),
  }
}

function unitOf(columns: Rows['columns']): Chart['unit'] {
  if (columns.every(isAmount)) return 'usd'
  return columns.every(({name}) => name.includes('ltv')) ? 'ratio' : 'number'
}
