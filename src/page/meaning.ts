import {type Column, count, dollars, linked, percent, ratio, table, words} from './figures.ts'
import {type Html, html} from './html.ts'

/** A column of a query or a table. */
export interface TypedColumn {
  name: string
  /** As the engine names it; empty where it is not known, and values say it. */
  type: string
}

/** What values of a column are: DECIMAL with two places are dollars, `ltv` ratios, `_pct` percentages, whole numbers counts. */
function meaningOf({name, type}: TypedColumn): 'usd' | 'ratio' | 'percent' | 'count' | 'name' | 'text' {
  if (/(^|_)ltv$/.test(name)) return 'ratio'
  if (name.endsWith('_pct')) return 'percent'
  if (/^DECIMAL\(\d+,2\)$/.test(type)) return 'usd'
  if (/^U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?$/.test(type)) return 'count'
  return /(^|_)(status|loan_program|status_class|bucket|dimension|term|category)$/.test(name)
    ? 'name'
    : 'text'
}

/** A value as its column means it. */
export function formatValue(column: TypedColumn, value: unknown): string {
  if (value === null || value === undefined) return '–'
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (typeof value === 'object') return JSON.stringify(value)
  const text = String(value)
  const isNumber = /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(text)
  switch (meaningOf(column)) {
    case 'usd':
      return dollars(text)
    case 'ratio':
      return isNumber ? ratio(text) : text
    case 'percent':
      return isNumber ? percent(Number(text)) : text
    case 'count':
      return count(text)
    case 'name':
      return words(text)
    case 'text':
      return column.type === '' && /^-?\d+\.\d\d$/.test(text) ? dollars(text) : text
  }
}

/** Rows of a query, each value as its column means it. @param dealLink the page of a deal */
export function renderMeant(
  {columns, rows}: {columns: readonly TypedColumn[]; rows: readonly (readonly unknown[])[]},
  dealLink: (dealId: string) => string,
): Html {
  if (rows.length === 0) return html`<p class="empty">No rows.</p>`
  return table(
    columns.map(
      (column, index): Column<readonly unknown[]> => ({
        title: words(column.name),
        kind:
          ['name', 'text'].includes(meaningOf(column)) && !/^(DECIMAL|DOUBLE)/.test(column.type)
            ? undefined
            : 'number',
        cell: (row) => {
          const text = formatValue(column, row[index])
          return column.name === 'deal_id' && text !== '–' ? linked(text, dealLink(text)) : text
        },
      }),
    ),
    rows,
  )
}
