import {groupThousands} from '../core/money.ts'
import type {TiedTerm} from '../core/types.ts'

/** Escapes control and bidirectional characters except line ends: a text of the source must not control the terminal. */
export function showControls(text: string): string {
  return text.replace(
    /[[\p{Cc}\p{Bidi_Control}]--\n]/gv,
    (control) => `\\u${control.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** Joins lines; values that are not text are left out. */
export function joinLines(lines: readonly (string | false | null | undefined)[]): string {
  return lines.filter((line) => typeof line === 'string').join('\n')
}

/** A count or an amount with its sign: `+1,234.56`. */
export function signed(value: number | string): string {
  const text = groupThousands(value)
  return text.startsWith('-') ? text : `+${text}`
}

/** The title of a printed column: numbers and exact digits are right-aligned, numbers with separators. */
type PrintedColumn = string | {number: string} | {digits: string}

/** What a cell holds; null is an empty one. */
type Cell = string | number | null | undefined

const titleOf = (column: PrintedColumn): string =>
  typeof column === 'string' ? column : Object.values(column).join()

/** Renders rows as a table or, if that is wider than `width`, as records with a line for each column. */
export function renderTable(
  columns: readonly PrintedColumn[],
  rows: readonly (readonly Cell[])[],
  width = Number.POSITIVE_INFINITY,
): string {
  const titles = columns.map((column) => toCell(titleOf(column)))
  const lines = rows.map((row) => columns.map((column, index) => toCell(row[index], column)))
  const widths = titles.map((title, index) =>
    lines.reduce((widest, line) => Math.max(widest, [...(line[index] ?? '')].length), title.length),
  )
  const rule = widths.map((width) => '─'.repeat(width)).join('  ')
  if (rows.length > 0 && rule.length > width) {
    const widest = Math.max(...titles.map(({length}) => length))
    const renderRecord = (row: readonly Cell[]) =>
      titles.map((title, index) => `${title.padEnd(widest)}  ${toCell(row[index])}`.trimEnd()).join('\n')
    return rows.map(renderRecord).join('\n\n')
  }
  const renderLine = (cells: readonly string[]) =>
    columns
      .map((column, index) => {
        const cell = cells[index] ?? ''
        const padding = ' '.repeat((widths[index] ?? 0) - [...cell].length)
        return typeof column === 'string' ? cell + padding : padding + cell
      })
      .join('  ')
      .trimEnd()
  return [renderLine(titles), rule, ...lines.map(renderLine)].join('\n')
}

/** A cell in one line. */
function toCell(cell: Cell, column?: PrintedColumn): string {
  const text = String(cell ?? '')
  const isNumber = typeof column === 'object' && 'number' in column
  return showControls(isNumber ? groupThousands(text) : text).replaceAll('\n', '\\n')
}

/** A month's roll-forward with its booked and unbooked amounts; empty if nothing moved. */
export function renderTerms(terms: readonly TiedTerm[] = []): string {
  if (terms.length === 0) return ''
  const unbooked = terms
    .filter(({because}) => because !== null)
    .map(({term, unbooked, because}) => `${term} ${groupThousands(unbooked)} (${because})`)
  const table = renderTable(
    [
      'roll-forward',
      {number: 'amount'},
      {number: 'booked'},
      {number: 'not booked'},
      'because',
      {number: 'difference'},
    ],
    terms.map(({term, amount, booked, unbooked, because, difference}) => [
      term,
      amount,
      booked,
      unbooked,
      because,
      difference,
    ]),
  )
  return `${unbooked.length > 0 ? `\nNot booked: ${unbooked.join(', ')}.` : ''}\n${table}`
}
