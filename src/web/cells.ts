import {z} from 'zod'
import {INTEREST} from '../core/money.ts'
import type {TableColumn} from '../store/sql.ts'
import {capitalised, count, dollars, instant, linked, percent, ratio, span, words} from './figures.ts'
import {addressOfDeal} from './filter.ts'
import {Html, html, prose} from './html.ts'

const MEANINGS = /_(usd|ratio|pct|ms|name|id|prose)$/

/** Tells the meaning by the ending of the name, else by the type. `_prose` is text with code between backticks. */
export function meaningOf({name, type}: TableColumn) {
  if (name.endsWith('_usd')) return 'usd'
  if (/_ratio$|(^|_)ltv$/.test(name)) return 'ratio'
  if (name.endsWith('_pct')) return 'percent'
  if (name.endsWith('_ms')) return 'span'
  if (name.endsWith('_prose')) return 'prose'
  if (/^DECIMAL\(\d+,2\)$/.test(type)) return 'usd'
  if (/^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DECIMAL\(\d+,\d+\)|DOUBLE|FLOAT)$/.test(type))
    return /(^|_)year$/.test(name) ? 'text' : 'count'
  return /(^|_)(name|status|loan_program|status_class|bucket|dimension|term|category)$/.test(name)
    ? 'name'
    : 'text'
}

const NUMBERS = {
  usd: dollars,
  ratio,
  percent: (text: string, name: string) => percent(Number(text), INTEREST.test(name) ? 3 : 1),
  span: (text: string) => span(Number(text)),
}

export const isDollars = (column: TableColumn) => meaningOf(column) === 'usd'

export const isNumeric = (column: TableColumn) => !['name', 'prose', 'text'].includes(meaningOf(column))

export const titleOfColumn = ({name}: TableColumn) =>
  capitalised(words(name.replace(MEANINGS, ''))).replace(/\bltv\b/i, 'LTV')

/** Without the digits that only a DOUBLE has: 15.837837837837839 is 15.838. */
const briefly = (text: string) => {
  const value = Number(text)
  return String(Number(Math.abs(value) < 1 ? value.toPrecision(3) : value.toFixed(3)))
}

export function formatValue(column: TableColumn, value: unknown): string {
  if (value === null || value === undefined) return '–'
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (typeof value === 'object') return JSON.stringify(value)
  const text = String(value)
  const meaning = meaningOf(column)
  if (meaning === 'count') return count(/^(DOUBLE|FLOAT)$/.test(column.type) ? briefly(text) : text)
  if (meaning === 'name') return words(text)
  if (meaning === 'prose' || meaning === 'text') return text
  return /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(text) ? NUMBERS[meaning](text, column.name) : text
}

/** Values may be anything; markup in them is escaped. A column without a type is of an unknown one. */
export interface Block {
  columns: readonly TableColumn[]
  rows: readonly (readonly unknown[])[]
  /** So many leading columns are always shown, whatever their names: people chose those names. */
  asNamed?: number
}
export type Row = Block['rows'][number]

export const objectsOf = ({columns, rows}: Block): Record<string, unknown>[] =>
  rows.map((row) => Object.fromEntries(columns.map(({name}, index) => [name, row[index]])))

/** For an address that SQL wrote; undefined if it leads nowhere. */
export type LinkTo = (address: string) => string | undefined

/** Helper columns of a column: its link, a bar, a colour, a note. */
const BESIDE = /^(.+)_(href|bar|tone|note)$/
/** Of a figure also its last values, drawn as a line. */
export const BESIDE_FIGURE = /^(.+)_(href|bar|tone|note|line)$/
/** Columns that describe their row. */
const OF_ROW = ['is_total', 'is_current']

export interface Shown extends TableColumn {
  of(row: Row): unknown
  beside(row: Row, what: string): string | undefined
  hasBar: boolean
}

const indexSaying = ({columns, asNamed = 0}: Block, wanted: string) =>
  columns.findIndex(({name}, index) => index >= asNamed && name === wanted)

const MIDNIGHT = / 00:00:00$/

/**
 * `date_trunc` and a day plus an interval are instants to the engine. In people's SQL they are days, which no time zone moves. An
 * instant of ours may be a midnight, too: such columns are named `_at` or `valid_from`.
 */
export function withDays({columns, rows, ...more}: Block): Block {
  const areDays = columns.map(
    ({name, type}, index) =>
      type === 'TIMESTAMP' &&
      !/_at$|^valid_/.test(name) &&
      rows.every((row) => row[index] === null || MIDNIGHT.test(String(row[index]))),
  )
  const dayOf = (value: unknown, index: number) =>
    areDays[index] && value !== null ? String(value).replace(MIDNIGHT, '') : value
  return {
    ...more,
    columns: columns.map((column, index) => (areDays[index] ? {...column, type: 'DATE'} : column)),
    rows: areDays.includes(true) ? rows.map((row) => row.map(dayOf)) : rows,
  }
}

/** Without helper columns. */
export function listShown(block: Block, beside = BESIDE): Shown[] {
  const indexOf = (wanted: string) => indexSaying(block, wanted)
  return block.columns.flatMap((column, index) => {
    const {name} = column
    const isSaying = OF_ROW.includes(name) || indexOf(beside.exec(name)?.[1] ?? '') !== -1
    if (isSaying && index >= (block.asNamed ?? 0)) return []
    return {
      ...column,
      hasBar: indexOf(`${name}_bar`) !== -1,
      of: (row) => row[index],
      beside: (row, what) => {
        const value = row[indexOf(`${name}_${what}`)]
        return value === undefined || value === null ? undefined : String(value)
      },
    }
  })
}

export function isSo(block: Block, name: 'is_total' | 'is_current', row: Row): boolean {
  // SQLite has 1 for true; the totals of a matrix are 1, 2 or 3.
  return Number(row[indexSaying(block, name)]) > 0
}

export const textOf = (column: Shown, row: Row) => String(column.of(row) ?? '–')

/** In the state database, instants are text. */
const isInstant = ({type}: TableColumn, text: string) =>
  type === 'TIMESTAMP' || (/^(text)?$/i.test(type) && /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(text))

export function cellOf(column: Shown, row: Row, linkTo: LinkTo): Html | string {
  const [value, note] = [contentOf(column, row, linkTo), column.beside(row, 'note')]
  return note === undefined ? value : html`${value}<span class="lines muted small">\n${note}</span>`
}

/** Nulls and zeros get no link. */
function contentOf(column: Shown, row: Row, linkTo: LinkTo): Html | string {
  const value = column.of(row)
  if (value instanceof Html) return value
  // Most cells hold one value; only arrays are parsed.
  const lines = Array.isArray(value) ? z.array(line).safeParse(value) : undefined
  if (lines?.success)
    return html`${lines.data.map(({text, href}) => html`<div>${linked(text, linkTo(href ?? ''))}</div>`)}`
  const text = formatValue(column, value)
  if (value === null || (isNumeric(column) && Number(value) === 0)) return text
  const [address, tone] = [column.beside(row, 'href'), column.beside(row, 'tone')]
  const isDeal = column.name === 'deal_id' && address === undefined
  const href = linkTo(isDeal ? addressOfDeal(text) : (address ?? ''))
  const meant = isInstant(column, text) ? 'instant' : meaningOf(column)
  const write = {instant, name: words, prose}[meant as string] ?? String
  const shown = isDeal
    ? html`<code>${text}</code>`
    : typeof value === 'string' && / → |\n/.test(value)
      ? html`<span class="lines">${value.split(ARROW).map((part, index) => html`${index > 0 && ARROW}<bdi>${write(part)}</bdi>`)}</span>`
      : write(text)
  return tone === undefined ? linked(shown, href) : html`<b class="${tone}">${linked(shown, href)}</b>`
}

/** One of several values of a cell. */
const line = z.object({text: z.string(), href: z.string().nullish()})

/** The names on both sides keep their own text direction. */
const ARROW = ' → '

function bar(share: number): Html {
  const width = Math.max(0, Math.min(100, share)).toFixed(2)
  return html`<svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect width="${width}" height="8" rx="0.6"/></svg>`
}

export interface Column<Row> {
  /** Empty for a column of bars. */
  title: Html | string
  kind?: 'number' | 'bar' | 'long' | 'head' | undefined
  cell: (row: Row) => Html | string | false
  shade?: (row: Row) => string
}

/** A day or month, also as a link. */
const DAY = /^(<[^>]+>)?\d{4}-\d\d(-\d\d)?(<\/a>)?$/

function table<Row>(columns: readonly Column<Row>[], rows: readonly Row[], total?: Row): Html {
  const cells = (row: Row) =>
    columns.map(({kind, cell, shade}) => {
      const value = cell(row)
      const text = value instanceof Html ? value.html : String(value)
      const isHead = kind === 'head'
      const shape = isHead || !kind ? DAY.test(text) && 'day' : kind
      const classes = [shape || '', shade?.(row) ?? ''].join(' ').trim()
      const shown = classes !== '' && html` class="${classes}"`
      return isHead ? html`<th scope="row"${shown}>${value}</th>` : html`<td${shown}>${value}</td>`
    })
  return html`<div class="scroll" tabindex="0"><table>
<thead><tr>${columns.map(({title, kind}) => (title === '' ? html`<td></td>` : html`<th scope="col"${kind === 'number' && html` class="number"`}>${title}</th>`))}</tr></thead>
<tbody>
${rows.map((row) => html`<tr>${cells(row)}</tr>\n`)}</tbody>
${total !== undefined && html`<tfoot><tr>${cells(total)}</tr></tfoot>\n`}</table></div>`
}

/** Bars stand before their numbers, the last total at the foot. */
export function renderMeant(
  block: Block,
  linkTo: LinkTo = () => undefined,
  titleOf: (title: string, column: TableColumn) => Html | string = (title) => title,
): Html {
  if (block.rows.length === 0) return html`<p class="empty">No rows.</p>`
  const total = block.rows.findLast((row) => isSo(block, 'is_total', row))
  const isLong = ({of}: Shown) => block.rows.some((row) => String(of(row)).length > 40)
  const columns = listShown(block).flatMap((column): Column<Row>[] => {
    const barOf = (row: Row) => row !== total && bar(Number(column.beside(row, 'bar')) || 0)
    return [
      ...(column.hasBar ? [{title: '', kind: 'bar' as const, cell: barOf}] : []),
      {
        title: titleOf(titleOfColumn(column), column),
        kind: isNumeric(column) ? 'number' : isLong(column) ? 'long' : undefined,
        cell: (row) => cellOf(column, row, linkTo),
      },
    ]
  })
  const rows = block.rows.filter((row) => row !== total)
  const cells = table(columns, rows, total)
  return total && columns.some(({kind}) => kind === 'bar')
    ? html`<div class="breakdown">${cells}</div>`
    : cells
}

export const shadeOf = (share: number) => (share > 0 ? `shade-${Math.min(5, Math.ceil(share * 5))}` : '')

/**
 * A row for each value of the first column, a column for each of the second, cells shaded by share or tone. `is_total` is 1 for a
 * column total, 2 for a row total, 3 for both.
 */
export function renderMatrix(block: Block, linkTo: LinkTo): Html | string {
  const [place, series, value] = listShown(block)
  if (!place || !series || !value) return 'A matrix needs three columns.'
  const totalAt = indexSaying(block, 'is_total')
  const isTotalOf = (bit: 1 | 2, row: Row) => (Number(row[totalAt] ?? 0) & bit) > 0
  const keyOf = (row: Row) => JSON.stringify([isTotalOf(1, row), series.of(row)])
  const groups = [
    ...Map.groupBy(block.rows, (row) => JSON.stringify([isTotalOf(2, row), place.of(row)])).values(),
  ]
  if (groups.some((own) => new Set(own.map(keyOf)).size < own.length))
    return `'${place.name}' and '${series.name}' have the same values in several rows: a matrix needs one row for each.`
  const [foot] = groups.filter(([row = []]) => isTotalOf(2, row))
  const whole = {ratio: 1, percent: 100}[meaningOf(value) as string] ?? Number.NaN
  const columnOf = (key: string, named: Row): Column<readonly Row[]> => {
    const find = (own: readonly Row[]) => own.find((row) => keyOf(row) === key)
    return {
      title: isTotalOf(1, named) && series.of(named) === null ? 'All' : words(textOf(series, named)),
      kind: isNumeric(value) ? 'number' : undefined,
      cell: (own) => {
        const row = find(own)
        return row ? cellOf(value, row, linkTo) : '–'
      },
      shade: (own) => {
        const row = find(own) ?? []
        const tone = value.beside(row, 'tone')
        return tone === undefined ? shadeOf(Number(value.of(row)) / whole) : `shade-${tone}`
      },
    }
  }
  const columns = [...new Map(block.rows.map((row) => [keyOf(row), row]))]
    .sort(([, a], [, b]) => Number(isTotalOf(1, a)) - Number(isTotalOf(1, b)))
    .map(([key, named]) => columnOf(key, named))
  const first: Column<readonly Row[]> = {
    title: titleOfColumn(place),
    kind: 'head',
    cell: (own) => (own === foot ? 'All' : cellOf(place, own[0] ?? [], linkTo)),
  }
  const rows = groups.filter((own) => own !== foot)
  return html`<div class="matrix">${table([first, ...columns], rows, foot)}</div>`
}

/** Titles are column names. Numbers are formatted, with the exact value as a tooltip; deals are links. */
export function renderExact({columns, rows}: Block, linkTo: LinkTo): Html {
  if (rows.length === 0) return html`<p class="empty">No rows.</p>`
  const write = (column: TableColumn, value: unknown) => {
    if (value === null || value === undefined) return html`<span class="muted">–</span>`
    if (typeof value === 'object') return JSON.stringify(value)
    if (column.name === 'deal_id') return linked(String(value), linkTo(addressOfDeal(String(value))))
    const text = isNumeric(column) ? formatValue(column, value) : String(value)
    return text === String(value) ? text : html`<span title="${String(value)}">${text}</span>`
  }
  const shown = columns.map(
    (column, index): Column<Row> => ({
      title: html`<code>${column.name}</code>`,
      kind: isNumeric(column) ? 'number' : undefined,
      cell: (row) => write(column, row[index]),
    }),
  )
  return html`<div class="rows">${table(shown, rows)}</div>`
}
