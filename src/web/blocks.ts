import {z} from 'zod'
import {LONGEST_NOTE} from '../accounting/notes.ts'
import {parseJson} from '../core/json.ts'
import {
  BESIDE_FIGURE,
  type Block,
  cellOf,
  formatValue,
  isDollars,
  isNumeric,
  isSo,
  listShown,
  meaningOf,
  type Row,
  renderMatrix,
  renderMeant,
  type Shown,
  shadeOf,
  titleOfColumn,
} from './cells.ts'
import {type Around, type ChartShape, listValues, renderChart} from './chart.ts'
import {dollarsAtAGlance, linked, ratio} from './figures.ts'
import {hidden, without} from './filter.ts'
import {type Html, html, prose} from './html.ts'

/** A string says why the rows do not fit the shape. */
type Render = (block: Block, around: Around) => Html | Html[] | string

const drawn =
  (shape: ChartShape): Render =>
  (...asked) =>
    renderChart(shape, ...asked)

/** Each row is one sentence: its values in order, nulls left out. */
const lines =
  (write: (line: Html) => Html): Render =>
  (block, {linkTo}) => {
    const columns = listShown(block)
    return block.rows.map((row) =>
      write(html`${columns.map((column) => column.of(row) !== null && cellOf(column, row, linkTo))}`),
    )
  }

const RENDERERS = {
  table: (block, {linkTo}) => renderMeant(block, linkTo),
  number: renderFigures,
  line: drawn('line'),
  area: drawn('area'),
  bar: drawn('bar'),
  waterfall: drawn('waterfall'),
  matrix: (block, {linkTo}) => renderMatrix(block, linkTo),
  map: renderMap,
  limits: renderLimits,
  choices: renderChoices,
  facts: renderFacts,
  list: (...asked) => html`<ul class="needs">${lines((line) => html`<li>${line}</li>`)(...asked)}</ul>`,
  lead: lines((line) => html`<p class="lead">${line}</p>`),
  text: lines((line) => html`<p class="muted small">${line}</p>`),
  total: lines((line) => html`<p class="muted" id="total">${line}</p>`),
  notice: lines((line) => html`<p class="notice">${line}</p>`),
  records: renderRecords,
} satisfies Record<string, Render>
export type Shape = keyof typeof RENDERERS

/** A mail shows these as tables. */
export const DRAWN = ['line', 'area', 'bar', 'waterfall', 'map'] as const

const SHAPES = Object.keys(RENDERERS) as Shape[]

export const shapeNamed = (name: string | null) => SHAPES.find((one) => one === name) ?? 'table'

const OF_PAGES = ['title', 'deals', 'pages', 'actions'] as const

const OPTIONS = 'heading note title label values day empty deals needs name range'.split(' ')

const listWords = (text: string) => [...text.matchAll(/([^\s=]+)(?:=("[^"]*"|\S*))?/g)]

/** `by=state empty="None."` */
export const readOptions = (text: string): Record<string, string> =>
  Object.fromEntries(
    listWords(text).flatMap(([, key = '', value]) =>
      value === undefined ? [] : [[key, value.replace(/^"(.*)"$/, '$1')]],
    ),
  )

/** What follows `sql` in a fence: `table heading="By state" empty="None."`. Returns a string that says what is wrong. */
export function parseAsked(text: string) {
  const [name = 'table', stray] = listWords(text).flatMap(([, word = '', value]) =>
    value === undefined ? [word] : [],
  )
  const shapes = [...SHAPES, ...OF_PAGES]
  const shape = shapes.find((one) => one === name)
  if (!shape) return `Block '${name}': expected one of ${shapes.join(', ')}.`
  if (stray !== undefined)
    return `Word '${stray}': expected option=value, a value with spaces in double quotes.`
  const options = readOptions(text)
  const unknown = Object.keys(options).find((key) => !OPTIONS.includes(key))
  if (unknown !== undefined) return `Option '${unknown}': expected one of ${OPTIONS.join(', ')}.`
  if ((options.deals ?? 'all') !== 'all') return `Option 'deals=${options.deals}': expected deals=all.`
  return {shape, options}
}

/**
 * Renders a block under its heading. Without rows it shows the text of `empty`, or nothing if that is blank. Rows that do not fit
 * the shape are shown as a table, and `tell` gets the reason. `mostOfMail` is set for a mail: charts become tables of at most so
 * many places.
 */
export function renderBlock(
  block: Block,
  shape: Shape,
  {mostOfMail, tell, ...around}: Around & {mostOfMail?: number; tell?: (problem: string) => void},
): Html {
  const {empty = 'No rows.'} = around.options
  const isEmpty = block.rows.length === 0
  if (isEmpty && empty === '') return html``
  const inMail = mostOfMail === undefined ? undefined : DRAWN.find((one) => one === shape)
  const shown = isEmpty
    ? html`<p class="empty">${empty}</p>`
    : inMail
      ? listValues(inMail, block, around.linkTo, mostOfMail)
      : RENDERERS[shape](block, around)
  const problem = typeof shown === 'string' ? shown : undefined
  if (problem !== undefined) tell?.(problem)
  const said =
    problem === undefined
      ? shown
      : html`<p class="notice">${problem} The rows as a table:</p>${renderMeant(block, around.linkTo)}`
  return underHeading(said, around.options, isEmpty)
}

export const underHeading = (
  shown: Html | Html[] | string,
  {heading, note}: Around['options'],
  isEmpty: boolean,
) =>
  html`${heading !== undefined && html`<h2>${heading}</h2>\n`}${note !== undefined && !isEmpty && html`<p class="muted small">${note}</p>\n`}${shown}\n`

/** An amount with a note is rounded. */
function renderFigures(block: Block, {linkTo}: Around): Html | string {
  const [row = [], ...others] = block.rows
  if (others.length > 0) return `Figures need one row: there are ${block.rows.length}.`
  return html`<div class="figures">${listShown(block, BESIDE_FIGURE).map((column) => {
    const value = column.of(row)
    const [note, address] = [column.beside(row, 'note'), column.beside(row, 'href')]
    const isGlance = note !== undefined && meaningOf(column) === 'usd' && value !== null
    const shown = isGlance ? dollarsAtAGlance(String(value)) : formatValue(column, value)
    const href = address === undefined || Number(value) === 0 ? undefined : linkTo(address)
    return html`<div class="figure"><div class="name">${titleOfColumn(column)}</div><div class="value">${linked(shown, href, `${titleOfColumn(column)}: ${shown}`)}</div><div class="note">${note}</div>${renderLine(column, row)}</div>`
  })}</div>`
}

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
  return html`<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img"><title>${words}</title><polyline points="${points.join(' ')}"/></svg>`
}

/** The columns are name, amount used, limit and state; all others are facts. */
function renderLimits(block: Block, {linkTo}: Around): Html | string {
  const [name, used, limit, state, ...others] = listShown(block)
  if (!name || !used || !limit || !state)
    return 'Limits need a name, what is used, the limit, and how it stands.'
  const shareOf = (row: Row) => Number(used.of(row) ?? Number.NaN) / Number(limit.of(row) ?? Number.NaN)
  const shares = block.rows.map(shareOf).filter(Number.isFinite)
  // Scaled to the largest breach, at most twice the limit, so that all marks line up.
  const whole = Math.min(2, Math.max(1, ...shares)) * 1.02
  const widthOf = (share: number) => ((100 * Math.max(0, Math.min(share, whole))) / whole).toFixed(2)
  return html`<ul class="limits">${block.rows.map((row) => {
    const share = shareOf(row)
    return html`<li><b>${cellOf(name, row, linkTo)}</b> ${cellOf(state, row, linkTo)}
<svg class="against-limit" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect class="room" width="100" height="10"/><rect class="used ${state.beside(row, 'tone') ?? ''}" width="${Number.isNaN(share) ? '0' : widthOf(share)}" height="10"/><path class="mark" d="M${widthOf(1)} 0v10"/></svg>
<span>${cellOf(used, row, linkTo)} of ${cellOf(limit, row, linkTo)}${Number.isFinite(share) && `, ${ratio(share)}`}</span>${others.map((column) => column.of(row) !== null && html` <span class="muted">${titleOfColumn(column).toLowerCase()} ${cellOf(column, row, linkTo)}</span>`)}</li>\n`
  })}</ul>`
}

function renderFacts(block: Block, {linkTo}: Around): Html | string {
  const [row = [], ...others] = block.rows
  if (others.length > 0) return `Facts need one row: there are ${block.rows.length}.`
  return html`<dl class="deal">${listShown(block).map((column) => html`<div><dt>${titleOfColumn(column).toLowerCase()}</dt><dd><bdi>${cellOf(column, row, linkTo)}</bdi></dd></div>`)}</dl>`
}

/**
 * A section for each row. The first value is the heading; the fragment of its link is the section's id. Other values are facts;
 * below them follow `_prose`, `_rows` as a table, and `received` byte for byte.
 */
function renderRecords(block: Block, {linkTo}: Around): Html[] | string {
  const [heading, ...columns] = listShown(block)
  const endingIn = (ending: string) => columns.filter(({name}) => name.endsWith(ending))
  const [prosaic, nested, received] = [endingIn('_prose'), endingIn('_rows'), endingIn('received')]
  const below = [...prosaic, ...nested, ...received]
  const odd = nested.find((column) => block.rows.some((row) => !listObjects(column.of(row))))
  if (odd) return `Column '${odd.name}': expected lists of objects.`
  return block.rows.map((row) => {
    const facts = columns.filter((column) => !below.includes(column) && column.of(row) !== null)
    const [, place] = /#(.+)$/.exec(heading?.beside(row, 'href') ?? '') ?? []
    return html`<section class="entry"${place !== undefined && html` id="${place}"`}>
${heading && html`<h2>${cellOf(heading, row, linkTo)}</h2>`}
<ul class="facts">${facts.map((column) => html`<li>${titleOfColumn(column).toLowerCase()} <b>${cellOf(column, row, linkTo)}</b></li>`)}</ul>
${prosaic.map((column) => html`<p>${cellOf(column, row, linkTo)}</p>\n`)}${nested.map((column) => renderMeant(blockOf(column.of(row)), linkTo))}
${received.map((column) => column.of(row) !== null && html`${column.name !== 'received' && html`<p class="muted">${titleOfColumn(column)}</p>`}<pre class="received" tabindex="0">${String(column.of(row))}</pre>`)}
</section>`
  })
}

const objects = z.array(z.record(z.string(), z.unknown()))

function listObjects(value: unknown) {
  try {
    return objects.parse(typeof value === 'string' ? parseJson(value) : (value ?? []))
  } catch {
    return undefined
  }
}

/** Amounts follow the first column, so that a phone shows them. An id, a code or a name can look like one. */
function blockOf(value: unknown): Block {
  const rows = listObjects(value) ?? []
  const [subject, ...names] = Object.keys(rows[0] ?? {})
  const isAmount = (name: string) =>
    !/(^|_)(id|code)$/.test(name) &&
    meaningOf({name, type: ''}) !== 'name' &&
    rows.every((row) => row[name] === null || /^-?\d+\.\d\d$/.test(String(row[name])))
  const columns = [
    ...(subject === undefined ? [] : [{name: subject, type: ''}]),
    ...names.filter(isAmount).map((name) => ({name, type: 'DECIMAL(38,2)'})),
    ...names.filter((name) => !isAmount(name)).map((name) => ({name, type: ''})),
  ]
  return {columns, rows: rows.map((row) => columns.map(({name}) => row[name]))}
}

/**
 * A form that an operator confirms: `title`, `says` (what happens), `button`, `why` (label of a reason), `note` (text to start
 * with). All other values are sent.
 */
export function renderAction({title, says, button, why, note, ...asked}: Record<string, unknown>): Html {
  return html`<details class="ask"><summary>${String(title)}</summary><form method="post" action="/actions">
${hidden(Object.entries(asked).map(([name, value]) => [name, String(value)]))}
<p>${prose(String(says))}</p>
${why !== undefined && html`<p><label>${String(why)} <input name="why" maxlength="500"></label></p>`}
${typeof note === 'string' && html`<p><textarea name="note" rows="3" maxlength="${LONGEST_NOTE}" required aria-label="Note">${note}</textarea></p>`}
<button>${String(button)}</button></form></details>`
}

/** The current choice is marked. With the option `day`, there is a field for any other day. */
function renderChoices(block: Block, {linkTo, options: {label, day}}: Around): Html {
  const [column] = listShown(block)
  const hrefOf = (row: Row) => linkTo(column?.beside(row, 'href') ?? '')
  const choices = block.rows.map((row) => {
    const text = column ? formatValue(column, column.of(row)) : ''
    const isHere = isSo(block, 'is_current', row)
    const href = hrefOf(row)
    return html`<a${href !== undefined && html` href="${href}"`}${isHere && html` aria-current="true"`}>${text}</a> `
  })
  const [path = '', query] = hrefOf(block.rows[0] ?? [])?.split('?') ?? []
  return html`<p class="choices">${label !== undefined && `${label} `}${choices}</p>${
    day !== undefined &&
    html`<form class="against" action="${path}">${hidden(without(new URLSearchParams(query), [day]))}<label>or <input type="date" name="${day}" aria-label="or the day"></label> <button>Compare</button></form>`
  }`
}

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

/** Shades each state by its number; names without a tile are listed below. */
function renderMap(block: Block, {linkTo, options}: Around): Html | string {
  const [state, number] = listShown(block)
  if (!state || !number || !isNumeric(number)) return 'A map needs a column of states and one of numbers.'
  if (new Set(block.rows.map((row) => state.of(row))).size < block.rows.length)
    return 'A map needs one row for each state.'
  const isBrief = ['usd', 'count'].includes(meaningOf(number))
  const write = (value: unknown) =>
    isBrief && value !== null ? ON_TILE.format(Number(value)) : formatValue(number, value)
  const most = Math.max(0, ...block.rows.map((row) => Number(number.of(row))))
  const tiles = TILES.map(({code, x, y}) => {
    const row = block.rows.find((one) => state.of(one) === code)
    const value = row && number.of(row)
    const href = row && linkTo(number.beside(row, 'href') ?? '')
    const words = row ? `${code} ${write(value)}, ${formatValue(number, value)}` : `${code} none`
    const drawn = html`<rect class="tile ${shadeOf(Number(value ?? 0) / most)}" x="${x * TILE + 1}" y="${y * TILE + 1}" width="${TILE - 2}" height="${TILE - 2}" rx="3"/><text class="code" x="${x * TILE + TILE / 2}" y="${y * TILE + 20}">${code}</text>${row && html` <text x="${x * TILE + TILE / 2}" y="${y * TILE + 38}">${write(value)}</text>`}`
    return href === undefined
      ? html`<g role="img"><title>${words}</title>${drawn}</g>\n`
      : html`<a href="${href}"><title>${words}</title>${drawn}</a>\n`
  })
  const others = block.rows.filter((row) => TILES.every(({code}) => code !== state.of(row)))
  return html`<figure class="map"><svg class="tiles" viewBox="0 0 ${11 * TILE} ${8 * TILE}" role="group" aria-label="${options.title ?? titleOfColumn(number)}">
${tiles}</svg><figcaption class="key">${most > 0 && [1, 2, 3, 4, 5].map((step) => html`<span><svg viewBox="0 0 10 10" aria-hidden="true"><rect class="tile shade-${step}" width="10" height="10" rx="2"/></svg>to ${isDollars(number) && '$'}${write((most * step) / 5)}</span> `)}${others.map((row) => html`<span>${cellOf(state, row, linkTo)} ${cellOf(number, row, linkTo)}</span> `)}</figcaption></figure>`
}
