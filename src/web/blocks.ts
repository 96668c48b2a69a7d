import {z} from 'zod'
import {isCalendarDate} from '../core/clock.ts'
import {parseJson} from '../core/json.ts'
import {centsOf, formatCents, groupThousands} from '../core/money.ts'
import {type Chart, renderChart} from './chart.ts'
import {
  capitalised,
  count,
  dollars,
  dollarsAtAGlance,
  instant,
  linked,
  percent,
  ratio,
  span,
  words,
} from './figures.ts'
import {addressOfDeal} from './filter.ts'
import {Html, html, prose} from './html.ts'

/** A column of a query or a table. */
interface TypedColumn {
  name: string
  /** The engine's name of the type; empty if unknown. */
  type: string
}

/** The endings of names that say what values mean, and are no part of a title. */
const MEANINGS = /_(usd|ratio|pct|ms|name|id|prose)$/

/**
 * What values of a column are, by the ending of its name; otherwise DECIMAL with two places are dollars, `ltv` ratios, whole numbers
 * counts, and what statuses and the like are called is a name. `_prose` has code between backticks.
 */
function meaningOf({name, type}: TypedColumn) {
  if (name.endsWith('_usd')) return 'usd'
  if (/_ratio$|(^|_)ltv$/.test(name)) return 'ratio'
  if (name.endsWith('_pct')) return 'percent'
  if (name.endsWith('_ms')) return 'span'
  if (name.endsWith('_prose')) return 'prose'
  if (/^DECIMAL\(\d+,2\)$/.test(type)) return 'usd'
  if (/^U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?$/.test(type)) return 'count'
  return /(^|_)(name|status|loan_program|status_class|bucket|dimension|term|category)$/.test(name)
    ? 'name'
    : 'text'
}

/** How a number is written by what it is. */
const NUMBERS = {
  usd: dollars,
  ratio,
  percent: (text: string) => percent(Number(text)),
  span: (text: string) => span(Number(text)),
}

export const isDollars = (column: TypedColumn) => meaningOf(column) === 'usd'

/** Whether values of a column are numbers. */
function isNumeric(column: TypedColumn): boolean {
  return !['name', 'prose', 'text'].includes(meaningOf(column)) || /^(DECIMAL|DOUBLE|FLOAT)/.test(column.type)
}

/** The title of a column: its name in words, without the ending that says what values mean. */
const titleOfColumn = ({name}: TypedColumn) =>
  capitalised(words(name.replace(MEANINGS, ''))).replace(/^Ltv\b/, 'LTV')

/** Formats a value by the meaning of its column. */
function formatValue(column: TypedColumn, value: unknown): string {
  if (value === null || value === undefined) return '–'
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (typeof value === 'object') return JSON.stringify(value)
  const text = String(value)
  const meaning = meaningOf(column)
  if (meaning === 'count') return count(text)
  if (meaning === 'name') return words(text)
  if (meaning === 'prose' || meaning === 'text')
    return column.type === '' && /^-?\d+\.\d\d$/.test(text) ? dollars(text) : text
  return /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(text) ? NUMBERS[meaning](text) : text
}

/** Columns, and rows of any values; markup among them is shown as it is. */
export interface Block {
  columns: readonly TypedColumn[]
  rows: readonly (readonly unknown[])[]
}
type Row = Block['rows'][number]

/** Each row as an object. */
export const objectsOf = ({columns, rows}: Block): Record<string, unknown>[] =>
  rows.map((row) => Object.fromEntries(columns.map(({name}, index) => [name, row[index]])))

/** Turns an address that SQL wrote into that of a link; undefined where there is none. */
type LinkTo = (address: string) => string | undefined

type Options = Readonly<Record<string, string>>
/** A text says why the rows have no such shape. */
type Render = (block: Block, linkTo: LinkTo, options: Options) => Html | Html[] | string

/** What the rows of a block can be shown as. */
const RENDERERS = {
  table: (block, linkTo) => renderMeant(block, linkTo),
  number: renderFigures,
  line: (...block) => renderDrawn('line', ...block),
  area: (...block) => renderDrawn('area', ...block),
  bar: (...block) => renderDrawn('bar', ...block),
  waterfall: (...block) => renderDrawn('waterfall', ...block),
  matrix: (block, linkTo) => renderMatrix(block, linkTo),
  map: renderMap,
  limits: renderLimits,
  choices: renderChoices,
  facts: renderFacts,
  list: (block, linkTo) =>
    html`<ul class="needs">${writeLines(block, linkTo).map((line) => html`<li>${line}</li>`)}</ul>`,
  lead: (block, linkTo) => writeLines(block, linkTo).map((line) => html`<p class="lead">${line}</p>`),
  text: (block, linkTo) => writeLines(block, linkTo).map((line) => html`<p class="muted small">${line}</p>`),
  total: (block, linkTo) => html`<p class="muted" id="total">${writeLines(block, linkTo)}</p>`,
  notice: (block, linkTo) => writeLines(block, linkTo).map((line) => html`<p class="notice">${line}</p>`),
  records: renderRecords,
} satisfies Record<string, Render>
export type Shape = keyof typeof RENDERERS

export const SHAPES = Object.keys(RENDERERS) as Shape[]

/** What else a block of a page can be: its title, a list of deals in pages, links to the pages of a list, or forms of actions. */
const OF_PAGES = ['title', 'deals', 'pages', 'actions'] as const

const OPTIONS = ['heading', 'note', 'title', 'label', 'values', 'day', 'empty', 'deals', 'needs']

/** What stands behind `sql` where a block begins. */
interface Asked {
  shape: Shape | (typeof OF_PAGES)[number]
  options: Options
}

/** Reads it: `table heading="By state" empty="None."`; a string says what is wrong. */
export function parseAsked(text: string): Asked | string {
  const words = [...text.matchAll(/([^\s=]+)(?:=("[^"]*"|\S*))?/g)]
  const [, name = 'table'] = words.find(([, , value]) => value === undefined) ?? []
  const shapes = [...SHAPES, ...OF_PAGES]
  const shape = shapes.find((one) => one === name)
  if (!shape) return `Block '${name}': expected one of ${shapes.join(', ')}.`
  const options = Object.fromEntries(
    words.flatMap(([, key = '', value]) =>
      value === undefined ? [] : [[key, value.replace(/^"(.*)"$/, '$1')]],
    ),
  )
  const unknown = Object.keys(options).find((key) => !OPTIONS.includes(key))
  if (unknown !== undefined) return `Option '${unknown}': expected one of ${OPTIONS.join(', ')}.`
  return {shape, options}
}

/**
 * The rows of a block under its heading; a block without rows says so, or leaves nothing where `empty` is blank. Rows without the shape
 * are a table, and `tell` is told why.
 */
export function renderBlock(
  block: Block,
  {shape, options}: {shape: Shape; options: Options},
  linkTo: LinkTo,
  tell?: (problem: string) => void,
): Html {
  const {heading, note, empty = 'No rows.'} = options
  const isEmpty = block.rows.length === 0
  if (isEmpty && empty === '') return html``
  const rows = isEmpty ? html`<p class="empty">${empty}</p>` : RENDERERS[shape](block, linkTo, options)
  if (typeof rows === 'string') tell?.(rows)
  return html`${heading !== undefined && html`<h2>${heading}</h2>\n`}${note !== undefined && !isEmpty && html`<p class="muted small">${note}</p>\n`}${typeof rows === 'string' ? html`<p class="notice">${rows} The rows as a table:</p>${renderMeant(block, linkTo)}` : rows}\n`
}

/** What another column says of one: its link, a bar before it, its colour, or a note below it. */
const BESIDE = /^(.+)_(href|bar|tone|note)$/
/** Of a figure also what it was before, since when that is, and its last values, of which a line is drawn. */
const BESIDE_FIGURE = /^(.+)_(href|bar|tone|note|before|since|line)$/
type Beside = 'href' | 'bar' | 'tone' | 'note' | 'before' | 'since' | 'line'
/** What a column says of its row. */
const OF_ROW = ['is_total', 'is_current']

interface Shown extends TypedColumn {
  of(row: Row): unknown
  beside(row: Row, what: Beside): string | undefined
  hasBar: boolean
}

/** The columns that are shown themselves. */
function listShown({columns}: Block, beside = BESIDE): Shown[] {
  const indexOf = (wanted: string) => columns.findIndex(({name}) => name === wanted)
  return columns.flatMap((column, index) => {
    const {name} = column
    if (OF_ROW.includes(name) || indexOf(beside.exec(name)?.[1] ?? '') !== -1) return []
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

/** Whether a row is a total, or the current choice. */
function isSo({columns}: Block, name: 'is_total' | 'is_current', row: Row): boolean {
  // SQLite has no truth but 1.
  return Number(row[columns.findIndex((column) => column.name === name)]) === 1
}

/** A value by the meaning of its column; what is not there, and nothing of a number, leads nowhere. */
function cellOf(column: Shown, row: Row, linkTo: LinkTo): Html | string {
  const value = column.of(row)
  if (value instanceof Html) return value
  // Most cells hold one value, and need no look by a schema.
  const lines = Array.isArray(value) ? z.array(line).safeParse(value) : undefined
  if (lines?.success)
    return html`${lines.data.map(({text, href}) => html`<div>${linked(text, linkTo(href ?? ''))}</div>`)}`
  const text = formatValue(column, value)
  if (value === null || (isNumeric(column) && Number(value) === 0)) return text
  if (column.type === 'TIMESTAMP') return instant(text)
  const [address, tone] = [column.beside(row, 'href'), column.beside(row, 'tone')]
  if (column.name === 'deal_id' && address === undefined)
    return linked(html`<code>${text}</code>`, linkTo(addressOfDeal(text)))
  const href = address === undefined ? undefined : linkTo(address)
  const meaning = meaningOf(column)
  const write = meaning === 'name' ? words : meaning === 'prose' ? prose : String
  const shown =
    typeof value === 'string' && / → |\n/.test(value)
      ? html`<span class="lines">${value.split(ARROW).map((part, index) => html`${index > 0 && ARROW}<bdi>${write(part)}</bdi>`)}</span>`
      : meaning === 'prose'
        ? prose(text)
        : text
  if (href === undefined && tone === undefined) return shown
  return tone === undefined ? linked(shown, href) : html`<b class="${tone}">${linked(shown, href)}</b>`
}

/** One of several values of a cell. */
const line = z.object({text: z.string(), href: z.string().nullish()})

/** Names on either side of it are each written in their own direction. */
const ARROW = ' → '

/** A small horizontal bar, `share` of 100 long. */
function bar(share: number | null): Html {
  const width = Math.max(0, Math.min(100, share ?? 0)).toFixed(2)
  return html`<svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect width="${width}" height="8" rx="0.6"/></svg>`
}

/** One column of a table; cells are made from a row. */
interface Column<Row> {
  /** Empty where the column is drawn. */
  title: Html | string
  kind?: 'number' | 'bar' | 'long' | undefined
  cell: (row: Row) => Html | string | false
  /** A further class of its cell, which shades it. */
  shade?: (row: Row) => string
}

/** A table of rows, with an optional row of totals. */
function table<Row>(columns: readonly Column<Row>[], rows: readonly Row[], total?: Row): Html {
  const cells = (row: Row) =>
    columns.map(({kind, cell, shade}) => {
      const value = cell(row)
      const shape = kind ?? (typeof value === 'string' && isCalendarDate(value) ? 'day' : undefined)
      const classes = [shape ?? '', shade?.(row) ?? ''].join(' ').trim()
      return html`<td${classes !== '' && html` class="${classes}"`}>${value}</td>`
    })
  return html`<div class="scroll" tabindex="0"><table>
<thead><tr>${columns.map(({title, kind}) => (title === '' ? html`<td></td>` : html`<th scope="col"${kind === 'number' && html` class="number"`}>${title}</th>`))}</tr></thead>
<tbody>
${rows.map((row) => html`<tr>${cells(row)}</tr>\n`)}</tbody>
${total !== undefined && html`<tfoot><tr>${cells(total)}</tr></tfoot>\n`}</table></div>`
}

/** Rows, formatted by the meaning of their columns; bars stand before the numbers that they show, the last total at the foot. */
export function renderMeant(
  block: Block,
  linkTo: LinkTo = () => undefined,
  titleOf: (title: string, column: TypedColumn) => Html | string = (title) => title,
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

/** Rows as they are, under the names of their columns: numbers to the right, deals as links. */
export function renderExact({columns, rows}: Block): Html {
  if (rows.length === 0) return html`<p class="empty">No rows.</p>`
  const write = (column: TypedColumn, value: unknown) => {
    if (value === null || value === undefined) return html`<span class="muted">–</span>`
    if (typeof value === 'object') return JSON.stringify(value)
    if (column.name === 'deal_id') return linked(String(value), addressOfDeal(String(value)))
    return /^DECIMAL\(\d+,2\)$/.test(column.type) ? groupThousands(String(value)) : String(value)
  }
  const shown = columns.map(
    (column, index): Column<Row> => ({
      title: html`<code>${column.name}</code>`,
      kind: /^(U?\w*INT|INTEGER|FLOAT|DOUBLE|DECIMAL)/.test(column.type) ? 'number' : undefined,
      cell: (row) => write(column, row[index]),
    }),
  )
  return html`<div class="rows">${table(shown, rows)}</div>`
}

/** One row as figures; with a note, an amount is shown at a glance. */
function renderFigures(block: Block, linkTo: LinkTo): Html {
  const [row = []] = block.rows
  return html`<div class="figures">${listShown(block, BESIDE_FIGURE).map((column) => {
    const value = column.of(row)
    const [note, address] = [column.beside(row, 'note'), column.beside(row, 'href')]
    const isGlance = note !== undefined && meaningOf(column) === 'usd' && value !== null
    const shown = isGlance ? dollarsAtAGlance(String(value)) : formatValue(column, value)
    const href = address === undefined || Number(value) === 0 ? undefined : linkTo(address)
    const notes = [note, wordChange(column, row)].filter((one) => one !== undefined)
    return html`<div class="figure"><div class="name">${titleOfColumn(column)}</div><div class="value">${linked(shown, href)}</div><div class="note">${notes.join('\n')}</div>${renderLine(column, row)}</div>`
  })}</div>`
}

/** How a figure moved: `+$1,234.56 (+0.8 %) since 2026-03-02`; of nothing there is no share, and shares move by points. */
function wordChange(column: Shown, row: Row): string | undefined {
  const [since, before] = [column.beside(row, 'since'), column.beside(row, 'before')]
  const value = column.of(row)
  if (since === undefined || value === null) return undefined
  if (before === undefined) return `nothing known of ${since}`
  const points = {ratio: 100, percent: 1}[meaningOf(column) as string]
  const change =
    points !== undefined
      ? (points * (Number(value) - Number(before))).toFixed(2)
      : isDollars(column) && [String(value), before].every((text) => /^-?\d+\.\d\d$/.test(text))
        ? formatCents(centsOf(String(value)) - centsOf(before))
        : String(Number((Number(value) - Number(before)).toPrecision(12)))
  if (!Number.isFinite(Number(change))) return undefined
  if (Number(change) === 0) return `unchanged\nsince ${since}`
  const sign = change.startsWith('-') ? '−' : '+'
  const size = change.replace('-', '')
  if (points !== undefined) return `${sign}${size} points\nsince ${since}`
  const share = Math.abs(Number(size) / Number(before))
  return `${sign}${formatValue(column, size)}${Number.isFinite(share) && share >= 0.0005 ? ` (${sign}${ratio(share).replace(' ', '\u00a0')})` : ''}\nsince ${since}`
}

/** The last values of a figure as a small line, which is told in words to those who cannot see it. */
function renderLine(column: Shown, row: Row): Html | false {
  const values = (column.beside(row, 'line') ?? '')
    .split(/[^-\d.e]+/)
    .filter((text) => text !== '' && Number.isFinite(Number(text)))
    .map(Number)
  const [least, most] = [Math.min(...values), Math.max(...values)]
  if (values.length < 2) return false
  const points = values.map((value, index) => {
    const height = most === least ? 0.5 : (value - least) / (most - least)
    return `${((100 * index) / (values.length - 1)).toFixed(2)},${(22 - 20 * height).toFixed(2)}`
  })
  const write = (value: number | undefined) =>
    isDollars(column) ? dollarsAtAGlance(String(value)) : formatValue(column, value)
  const words = `${titleOfColumn(column)}, the last ${values.length} values: from ${write(values[0])} to ${write(values.at(-1))}, at least ${write(least)}, at most ${write(most)}`
  return html`<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label="${words}"><polyline points="${points.join(' ')}"/></svg>`
}

/** Exposures against their limits: its name, what is used, the limit and how it stands, each with its bar; other columns are facts. */
function renderLimits(block: Block, linkTo: LinkTo): Html | string {
  const [name, used, limit, state, ...others] = listShown(block)
  if (!name || !used || !limit || !state)
    return 'Limits need a name, what is used, the limit, and how it stands.'
  const shareOf = (row: Row) => Number(used.of(row) ?? Number.NaN) / Number(limit.of(row) ?? Number.NaN)
  const shares = block.rows.map(shareOf).filter(Number.isFinite)
  // Room for the largest breach, up to the double, so that each mark stands at the same place.
  const whole = Math.min(2, Math.max(1, ...shares)) * 1.02
  const widthOf = (share: number) => ((100 * Math.max(0, Math.min(share, whole))) / whole).toFixed(2)
  return html`<ul class="limits">${block.rows.map((row) => {
    const share = shareOf(row)
    return html`<li><b>${cellOf(name, row, linkTo)}</b> ${cellOf(state, row, linkTo)}
<svg class="against-limit" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect class="room" width="100" height="10"/><rect class="used ${state.beside(row, 'tone') ?? ''}" width="${Number.isNaN(share) ? '0' : widthOf(share)}" height="10"/><path class="mark" d="M${widthOf(1)} 0v10"/></svg>
<span>${cellOf(used, row, linkTo)} of ${cellOf(limit, row, linkTo)}${Number.isFinite(share) && `, ${ratio(share)}`}</span>${others.map((column) => column.of(row) !== null && html` <span class="muted">${titleOfColumn(column).toLowerCase()} ${cellOf(column, row, linkTo)}</span>`)}</li>\n`
  })}</ul>`
}

/** One row as a list of names and values. */
function renderFacts(block: Block, linkTo: LinkTo): Html {
  const [row = []] = block.rows
  return html`<dl class="deal">${listShown(block).map((column) => html`<div><dt>${titleOfColumn(column).toLowerCase()}</dt><dd><bdi>${cellOf(column, row, linkTo)}</bdi></dd></div>`)}</dl>`
}

/**
 * A section for each row: its first value is the heading, at the place to which its link leads; others are facts; below them stand
 * `_prose`, `_rows` as a table, and what was `received`, byte for byte.
 */
function renderRecords(block: Block, linkTo: LinkTo): Html[] {
  const [heading, ...columns] = listShown(block)
  const endingIn = (ending: string) => columns.filter(({name}) => name.endsWith(ending))
  const [prosaic, nested, received] = [endingIn('_prose'), endingIn('_rows'), endingIn('received')]
  const below = [...prosaic, ...nested, ...received]
  return block.rows.map((row) => {
    const facts = columns.filter((column) => !below.includes(column) && column.of(row) !== null)
    const [, place] = /#(.+)$/.exec(heading?.beside(row, 'href') ?? '') ?? []
    return html`<section class="entry"${place !== undefined && html` id="${place}"`}>
${heading && html`<h2>${cellOf(heading, row, linkTo)}</h2>`}
<ul class="facts">${facts.map((column) => html`<li>${titleOfColumn(column).toLowerCase()} <b>${cellOf(column, row, linkTo)}</b></li>`)}</ul>
${prosaic.map((column) => html`<p>${cellOf(column, row, linkTo)}</p>\n`)}${nested.map((column) => renderMeant(blockOf(column.of(row))))}
${received.map((column) => column.of(row) !== null && html`${column.name !== 'received' && html`<p class="muted">${titleOfColumn(column)}</p>`}<pre class="received" tabindex="0">${String(column.of(row))}</pre>`)}
</section>`
  })
}

const objects = z.array(z.record(z.string(), z.unknown()))

/** A list of objects as rows, amounts right after what they are of, so that a phone shows both. */
function blockOf(value: unknown): Block {
  const rows = objects.parse(typeof value === 'string' ? parseJson(value) : (value ?? []))
  const [subject, ...names] = Object.keys(rows[0] ?? {})
  const isAmount = (name: string) =>
    rows.every((row) => row[name] === null || /^-?\d+\.\d\d$/.test(String(row[name])))
  const columns = [
    ...(subject === undefined ? [] : [{name: subject, type: ''}]),
    ...names.filter(isAmount).map((name) => ({name, type: 'DECIMAL(38,2)'})),
    ...names.filter((name) => !isAmount(name)).map((name) => ({name, type: ''})),
  ]
  return {columns, rows: rows.map((row) => columns.map(({name}) => row[name]))}
}

/** A form that an operator confirms: its `title`, what it `says` happens, its `button`, the label of a reason; all else is sent. */
export function renderAction({title, says, button, why, ...asked}: Record<string, unknown>): Html {
  return html`<details class="ask"><summary>${String(title)}</summary><form method="post" action="/actions">
${Object.entries(asked).map(([name, value]) => html`<input type="hidden" name="${name}" value="${String(value)}">`)}
<p>${prose(String(says))}</p>
${why !== undefined && html`<p><label>${String(why)} <input name="why" maxlength="500"></label></p>`}
<button>${String(button)}</button></form></details>`
}

/** A sentence for each row: its values one after the other, as far as there are any. */
function writeLines(block: Block, linkTo: LinkTo): Html[] {
  const columns = listShown(block)
  return block.rows.map(
    (row) => html`${columns.map((column) => column.of(row) !== null && cellOf(column, row, linkTo))}`,
  )
}

/** A row for each value of the first column, a column for each of the second, totals last. */
function renderMatrix(block: Block, linkTo: LinkTo, isNewestFirst = false): Html | string {
  const [place, series, value] = listShown(block)
  if (!place || !series || !value) return 'A matrix needs three columns.'
  const keyOf = (row: Row) => JSON.stringify([isSo(block, 'is_total', row), series.of(row)])
  const names = [...new Map(block.rows.map((row) => [keyOf(row), row]))].sort(
    ([, a], [, b]) => Number(isSo(block, 'is_total', a)) - Number(isSo(block, 'is_total', b)),
  )
  const rows = [...Map.groupBy(block.rows, (row) => place.of(row)).values()]
  const shareOf = (row: Row | undefined) => {
    const whole = {ratio: 1, percent: 100}[meaningOf(value) as string]
    return row && whole ? Number(value.of(row)) / whole : Number.NaN
  }
  const columns: Column<readonly Row[]>[] = [
    {title: titleOfColumn(place), cell: ([row = []]) => cellOf(place, row, linkTo)},
    ...names.map(
      ([key, named]): Column<readonly Row[]> => ({
        title: words(textOf(series, named)),
        kind: 'number',
        cell: (own) => {
          const row = own.find((one) => keyOf(one) === key)
          return row ? cellOf(value, row, linkTo) : '–'
        },
        shade: (own) => shadeOf(shareOf(own.find((one) => keyOf(one) === key))),
      }),
    ),
  ]
  return table(columns, isNewestFirst ? rows.toReversed() : rows)
}

/** Links beside each other, one of which is the page itself; with a parameter `day`, a field for any other day. */
function renderChoices(block: Block, linkTo: LinkTo, {label, day}: Options): Html {
  const [column] = listShown(block)
  const hrefOf = (row: Row) => linkTo(column?.beside(row, 'href') ?? '') ?? ''
  const choices = block.rows.map((row) => {
    const text = column ? formatValue(column, column.of(row)) : ''
    const isHere = isSo(block, 'is_current', row)
    return html`<a href="${hrefOf(row)}"${isHere && html` aria-current="true"`}>${text}</a> `
  })
  const [path = '', query] = hrefOf(block.rows[0] ?? []).split('?')
  const kept = [...new URLSearchParams(query)].filter(([name]) => name !== day)
  return html`<p class="choices">${label !== undefined && `${label} `}${choices}</p>${
    day !== undefined &&
    html`<form class="against" action="${path}">${kept.map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}<label>or <input type="date" name="${day}"></label> <button>Compare</button></form>`
  }`
}

/** Five shades for shares of a whole; nothing, and what is no share, has none. */
const shadeOf = (share: number) => (share > 0 ? `shade-${Math.min(5, Math.ceil(share * 5))}` : '')

/** Where each state stands on a map of equal tiles. */
const TILES = `
.. .. .. .. .. .. .. .. .. .. ME
.. .. .. .. .. WI .. .. .. VT NH
WA ID MT ND MN IL MI .. NY MA ..
OR NV WY SD IA IN OH PA NJ CT RI
CA UT CO NE MO KY WV VA MD DE ..
.. AZ NM KS AR TN NC SC DC .. ..
AK .. .. OK LA MS AL GA .. .. ..
HI .. .. TX .. .. .. .. FL .. ..`
  .trim()
  .split('\n')
  .flatMap((line, y) => line.split(' ').map((code, x) => ({code, x, y})))
  .filter(({code}) => code !== '..')

const TILE = 48
const ON_TILE = new Intl.NumberFormat('en-US', {notation: 'compact', maximumSignificantDigits: 3})

/** States, each a tile that its number shades; what has no tile stands below. */
function renderMap(block: Block, linkTo: LinkTo, {title}: Options): Html | string {
  const [state, number] = listShown(block)
  if (!state || !number || !isNumeric(number)) return 'A map needs a column of states and one of numbers.'
  if (new Set(block.rows.map((row) => state.of(row))).size < block.rows.length)
    return 'A map needs one row for each state.'
  const isBrief = ['usd', 'count', 'text'].includes(meaningOf(number))
  const write = (value: unknown) =>
    isBrief && value !== null ? ON_TILE.format(Number(value)) : formatValue(number, value)
  const most = Math.max(0, ...block.rows.map((row) => Number(number.of(row))))
  const tiles = TILES.map(({code, x, y}) => {
    const row = block.rows.find((one) => state.of(one) === code)
    const value = row && number.of(row)
    const href = row && linkTo(number.beside(row, 'href') ?? '')
    const words = row ? `${code} ${write(value)}, ${formatValue(number, value)}` : `${code} none`
    const drawn = html`<rect class="tile ${shadeOf(Number(value ?? 0) / most)}" x="${x * TILE + 1}" y="${y * TILE + 1}" width="${TILE - 2}" height="${TILE - 2}" rx="3"/><text class="code" x="${x * TILE + TILE / 2}" y="${y * TILE + 20}">${code}</text>${row && html` <text class="amount" x="${x * TILE + TILE / 2}" y="${y * TILE + 38}">${write(value)}</text>`}`
    return href === undefined
      ? html`<g role="img" aria-label="${words}">${drawn}</g>\n`
      : html`<a href="${href}" aria-label="${words}">${drawn}</a>\n`
  })
  const others = block.rows.filter((row) => TILES.every(({code}) => code !== state.of(row)))
  return html`<figure class="map"><svg class="tiles" viewBox="0 0 ${11 * TILE} ${8 * TILE}" role="group" aria-label="${title ?? titleOfColumn(number)}">
${tiles}</svg><figcaption class="key">${most > 0 && [1, 2, 3, 4, 5].map((step) => html`<span><svg viewBox="0 0 10 10" aria-hidden="true"><rect class="tile shade-${step}" width="10" height="10" rx="2"/></svg>to ${isDollars(number) && '$'}${write((most * step) / 5)}</span> `)}${others.map((row) => html`<span>${cellOf(state, row, linkTo)} ${cellOf(number, row, linkTo)}</span> `)}</figcaption></figure>`
}

/** A chart, with its values below it where they are asked for; of one place only the values. */
function renderDrawn(shape: Chart['shape'], block: Block, linkTo: LinkTo, options: Options): Html | string {
  const {title, values} = options
  const parts = {...block, rows: block.rows.filter((row) => !isSo(block, 'is_total', row))}
  const drawn = readSeries(parts, shape)
  if (typeof drawn === 'string') return drawn
  const hasOnePlace = drawn.places.length === 1 && values !== undefined
  return html`${!hasOnePlace && renderChart({...drawn, title: title ?? drawn.title, shape})}${values !== undefined && html`<details${hasOnePlace && html` open`}><summary>${values}</summary>${renderMatrix(block, linkTo, true)}</details>`}`
}

const textOf = (column: Shown, row: Row) => String(column.of(row) ?? '–')

/** Series that a chart can tell apart by colour. */
const MOST_SERIES = 7

/**
 * What a chart shows, or why there is none: the first column names the places; the numbers after it are series or, where places come
 * more than once, the values of the one text column are.
 */
function readSeries(block: Block, shape: Chart['shape']): Omit<Chart, 'shape'> | string {
  const {rows} = block
  const [first, ...others] = listShown(block)
  const numbers = others.filter(isNumeric)
  const texts = others.filter((column) => !isNumeric(column))
  const [number] = numbers
  if (!first || !number) return 'A chart needs a column that names the places, and numbers after it.'
  // Stacked, nothing is none.
  const nothing = shape === 'area' ? 0 : null
  const valueAt = (row: Row, column: Shown) => {
    const value = column.of(row)
    if (value === undefined || value === null) return nothing
    return meaningOf(column) === 'percent' ? Number(value) / 100 : Number(value)
  }
  const places = [...new Set(rows.map((row) => textOf(first, row)))]
  const [text] = texts
  const names = text ? [...new Set(rows.map((row) => textOf(text, row)))] : []
  const isOne = numbers.length === 1 && texts.length === 1
  // A series is a number, unless places come more than once, or one text has one value.
  const named = places.length < rows.length || (isOne && names.length === 1) ? text : undefined
  if (places.length < rows.length && (!named || !isOne))
    return `'${first.name}' has the same value in several rows: a chart needs one row for each, or beside it one text column, whose values are the series, and one number.`
  if (named && names.length > MOST_SERIES)
    return `'${named.name}' has ${names.length} values: a chart can show ${MOST_SERIES} series.`
  const keyOf = (place: string, series: string) => JSON.stringify([place, series])
  const values = new Map(
    rows.flatMap((row) =>
      numbers.map((column) => [
        keyOf(textOf(first, row), named ? textOf(named, row) : column.name),
        valueAt(row, column),
      ]),
    ),
  )
  if (named && values.size < rows.length)
    return `'${first.name}' and '${named.name}' have the same values in several rows: a chart needs one row for each.`
  const series = named ? names : numbers.map(({name}) => name)
  return {
    unit: unitOf(numbers),
    places: places.map(words),
    title: named ? `${number.name} by ${named.name}` : series.join(', '),
    series: series.map((name) => ({
      name: words(name),
      values: places.map((place) => values.get(keyOf(place, name)) ?? nothing),
    })),
  }
}

function unitOf(columns: readonly Shown[]): Chart['unit'] {
  const isAll = (...meanings: string[]) => columns.every((column) => meanings.includes(meaningOf(column)))
  return isAll('usd') ? 'usd' : isAll('ratio', 'percent') ? 'ratio' : 'number'
}
