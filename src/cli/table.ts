import type {TiedTerm} from '../accounting/profiles.ts'
import {groupThousands} from '../core/money.ts'
import {escapeLineEnds, INVISIBLE} from '../core/text.ts'

/** What a command prints: lines and tables, one below the other. What is no text is left out. */
export type Text = string | false | null | undefined | Table | {indented: Text} | readonly Text[]

export interface Table {
  columns: readonly {name: string; isFigure?: boolean}[]
  rows: readonly (readonly string[])[]
}

/** Marks text as a figure, such as an amount: an id or the code of an account can look like one. */
export const figure = (text: string | null | undefined) => (text == null ? null : {figure: text})

type Cell = string | number | ReturnType<typeof figure> | undefined

/** Numbers and figures are right-aligned with separators. */
export function tableOf(rows: readonly Readonly<Record<string, Cell>>[]): Table {
  const fields = Object.keys(rows[0] ?? {})
  return {
    columns: fields.map((field) => {
      const isFigure = rows.every(({[field]: cell}) => typeof cell !== 'string')
      return {name: field.replaceAll('_', ' '), isFigure}
    }),
    rows: rows.map((row) => fields.map((field) => textOf(row[field]))),
  }
}

function textOf(cell: Cell): string {
  if (typeof cell === 'string') return cell
  return groupThousands((typeof cell === 'object' ? cell?.figure : cell) ?? '')
}

/** A month's roll-forward with its booked and unbooked amounts; nothing if nothing moved. */
export const tableOfTerms = (terms: readonly TiedTerm[] = []): Text =>
  terms.length > 0 &&
  tableOf(
    terms.map(({term, amount, booked, unbooked, because: reason, difference}) => ({
      term,
      'roll-forward': figure(amount),
      booked: figure(booked),
      'not booked': figure(unbooked),
      because: reason === 'opening balance' ? `${reason}: --with-opening` : reason,
      difference: figure(difference),
    })),
  )

/** With an empty line between two. */
export const apart = (blocks: readonly Text[]): Text =>
  blocks.map((block, index) => (index === 0 ? block : ['', block]))

/**
 * Otherwise text of the source could control the terminal, or look like another one. Line ends and tabs, which errors of the engine
 * have, stay.
 */
export function escapeControls(text: string): string {
  return text.replace(INVISIBLE, (control) => `\\u${control.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

/** Makes a path one word of a command line to copy. */
export const quoteForShell = (path: string) =>
  /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`

/** Fits tables into `width` columns. */
export function layOut(text: Text, width: number): string {
  return listBlocks(text, width).join('\n')
}

function listBlocks(text: Text, width: number): string[] {
  if (typeof text === 'string') return [text]
  if (!text) return []
  if ('columns' in text) return [layOutTable(text, width)]
  if ('indented' in text) return [layOut(text.indented, width - 2).replace(/^/gm, '  ')]
  return text.flatMap((part) => listBlocks(part, width))
}

/** If a table is wider than `width`, renders records with one line for each column. */
function layOutTable({columns, rows: cells}: Table, width: number): string {
  const lines = [columns.map(({name}) => name), ...cells].map((line) =>
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
