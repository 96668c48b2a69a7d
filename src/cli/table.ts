import type {TiedTerm} from '../accounting/profiles.ts'
import {groupThousands} from '../core/money.ts'
import {escapeLineEnds, INVISIBLE} from '../core/text.ts'

/**
 * Otherwise text of the source could control the terminal, or look like another one. Line ends and tabs, which errors of the engine
 * have, stay.
 */
export function escapeControls(text: string): string {
  return text.replace(INVISIBLE, (control) => `\\u${control.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

/** Leaves out values that are not text. */
export function joinLines(lines: readonly (string | false | null | undefined)[]): string {
  return lines.filter((line) => typeof line === 'string').join('\n')
}

/** Columns whose text may be a figure: an id or a code of an account can look like one. */
const AMOUNTS =
  /^(amount|before|after|movement|funded|loan.amount|property.value|loan-to-value|share|debit|credit|roll-forward|(not )?booked|difference)$/
const FIGURE = /^([-+]?\$?[\d,]+\.\d+( %)?|[-+][\d,]+)$/

/** Figures are right-aligned with separators. */
export function renderTable(
  rows: readonly Readonly<Record<string, string | number | null | undefined>>[],
  width?: number,
): string {
  const fields = Object.keys(rows[0] ?? {})
  const columns = fields.map((field) => {
    const mayBe = AMOUNTS.test(field)
    const isFigure = rows.every(({[field]: cell}) => typeof cell !== 'string' || (mayBe && FIGURE.test(cell)))
    return {name: field.replaceAll('_', ' '), isFigure}
  })
  return renderColumns(
    columns,
    rows.map((row) =>
      columns.map(({isFigure}, index) => {
        const text = String(row[fields[index] ?? ''] ?? '')
        return isFigure ? groupThousands(text) : text
      }),
    ),
    width,
  )
}

/** If a table is wider than `width`, renders records with one line for each column. */
export function renderColumns(
  columns: readonly {name: string; isFigure?: boolean}[],
  texts: readonly (readonly string[])[],
  width = Number.POSITIVE_INFINITY,
): string {
  const lines = [columns.map(({name}) => name), ...texts].map((line) =>
    line.map((text) => escapeLineEnds(escapeControls(text))),
  )
  const [titles = [], ...rows] = lines
  const widths = titles.map((_, index) =>
    lines.reduce((widest, line) => Math.max(widest, [...(line[index] ?? '')].length), 0),
  )
  const rule = widths.map((width) => '─'.repeat(width)).join('  ')
  if (rows.length > 0 && rule.length > width) {
    const widest = Math.max(...titles.map(({length}) => length))
    const renderRecord = (row: readonly string[]) =>
      titles.map((title, index) => `${title.padEnd(widest)}  ${row[index]}`.trimEnd()).join('\n')
    return rows.map(renderRecord).join('\n\n')
  }
  const renderLine = (cells: readonly string[]) =>
    cells
      .map((cell, index) => {
        const padding = ' '.repeat((widths[index] ?? 0) - [...cell].length)
        return columns[index]?.isFigure ? padding + cell : cell + padding
      })
      .join('  ')
      .trimEnd()
  return [renderLine(titles), rule, ...rows.map(renderLine)].join('\n')
}

/** A month's roll-forward with its booked and unbooked amounts; empty if nothing moved. */
export function renderTerms(terms: readonly TiedTerm[] = [], width?: number): string {
  if (terms.length === 0) return ''
  const table = renderTable(
    terms.map(({term, amount, booked, unbooked, because: reason, difference}) => {
      const because = reason === 'opening balance' ? `${reason}: --with-opening` : reason
      return {term, 'roll-forward': amount, booked, 'not booked': unbooked, because, difference}
    }),
    width,
  )
  return `\n${table}`
}
