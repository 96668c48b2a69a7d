import {z} from 'zod'
import {LONGEST_NOTE, type StandingNote} from '../accounting/notes.ts'
import {addDays, isCalendarDate} from '../core/clock.ts'
import {parseJson} from '../core/json.ts'
import {centsOf, formatCents} from '../core/money.ts'
import {
  BESIDE_FIGURE,
  type Block,
  type Column,
  cellOf,
  formatValue,
  isDollars,
  isNumeric,
  isSo,
  type LinkTo,
  listShown,
  meaningOf,
  type Row,
  renderMeant,
  type Shown,
  table,
  titleOfColumn,
} from './cells.ts'
import {type Chart, renderChart} from './chart.ts'
import {dollarsAtAGlance, linked, ratio, words} from './figures.ts'
import {type Html, html, prose} from './html.ts'

type Options = Readonly<Record<string, string>>
/** A text says why the rows have no such shape. */
type Render = (
  block: Block,
  linkTo: LinkTo,
  options: Options,
  notes: readonly StandingNote[],
) => Html | Html[] | string

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
  calendar: renderCalendar,
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

/** Those that a mail shows as tables. */
const DRAWN = ['line', 'area', 'bar', 'waterfall', 'map'] as const

export const SHAPES = Object.keys(RENDERERS) as Shape[]

/** What else a block of a page can be: its title, a list of deals in pages, links to the pages of a list, or forms of actions. */
const OF_PAGES = ['title', 'deals', 'pages', 'actions'] as const

const OPTIONS = [
  'heading',
  'note',
  'title',
  'label',
  'values',
  'day',
  'empty',
  'deals',
  'needs',
  'name',
  'range',
]

/** Reads what stands behind `sql` where a block begins: `table heading="By state" empty="None."`; a string says what is wrong. */
export function parseAsked(text: string) {
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
 *
 * @param notes about days, which are marked in lines and areas over days or months
 */
export function renderBlock(
  block: Block,
  {
    shape,
    options,
    notes = [],
    mostOfMail,
  }: {shape: Shape; options: Options; notes?: readonly StandingNote[]; mostOfMail?: number},
  linkTo: LinkTo,
  tell?: (problem: string) => void,
): Html {
  const {heading, note, empty = 'No rows.'} = options
  const isEmpty = block.rows.length === 0
  if (isEmpty && empty === '') return html``
  const isDrawn = mostOfMail !== undefined && DRAWN.some((one) => one === shape)
  const rows = isEmpty
    ? html`<p class="empty">${empty}</p>`
    : isDrawn
      ? listDrawn(block, linkTo, {shape, most: mostOfMail})
      : RENDERERS[shape](block, linkTo, options, notes)
  if (typeof rows === 'string') tell?.(rows)
  return html`${heading !== undefined && html`<h2>${heading}</h2>\n`}${note !== undefined && !isEmpty && html`<p class="muted small">${note}</p>\n`}${typeof rows === 'string' ? html`<p class="notice">${rows} The rows as a table:</p>${renderMeant(block, linkTo)}` : rows}\n`
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

/**
 * A form that an operator confirms: its `title`, what it `says` happens, its `button`, the label of a reason, a note to begin with; all
 * else is sent.
 */
export function renderAction({title, says, button, why, note, ...asked}: Record<string, unknown>): Html {
  return html`<details class="ask"><summary>${String(title)}</summary><form method="post" action="/actions">
${Object.entries(asked).map(([name, value]) => html`<input type="hidden" name="${name}" value="${String(value)}">`)}
<p>${prose(String(says))}</p>
${why !== undefined && html`<p><label>${String(why)} <input name="why" maxlength="500"></label></p>`}
${note !== undefined && html`<p><textarea name="note" rows="3" maxlength="${LONGEST_NOTE}" required aria-label="Note">${String(note)}</textarea></p>`}
<button>${String(button)}</button></form></details>`
}

/** A sentence for each row: its values one after the other, as far as there are any. */
function writeLines(block: Block, linkTo: LinkTo): Html[] {
  const columns = listShown(block)
  return block.rows.map(
    (row) => html`${columns.map((column) => column.of(row) !== null && cellOf(column, row, linkTo))}`,
  )
}

/** A row for each value of the first column, a column for each of the second, totals last: `is_total` 1 of a column, 2 of a row, 3 of both. */
function renderMatrix(
  block: Block,
  linkTo: LinkTo,
  {isNewestFirst = false, most}: {isNewestFirst?: boolean; most?: number | undefined} = {},
): Html | string {
  const [place, series, value] = listShown(block)
  if (!place || !series || !value) return 'A matrix needs three columns.'
  const totalAt = block.columns.findIndex(({name}) => name === 'is_total')
  const isTotalOf = (bit: 1 | 2, row: Row) => (Number(row[totalAt] ?? 0) & bit) > 0
  const keyOf = (row: Row) => JSON.stringify([isTotalOf(1, row), series.of(row)])
  const names = [...new Map(block.rows.map((row) => [keyOf(row), row]))].sort(
    ([, a], [, b]) => Number(isTotalOf(1, a)) - Number(isTotalOf(1, b)),
  )
  const groups = [
    ...Map.groupBy(block.rows, (row) => JSON.stringify([isTotalOf(2, row), place.of(row)])).values(),
  ]
  const rows = groups.filter(([row = []]) => !isTotalOf(2, row))
  const foot = groups.find(([row = []]) => isTotalOf(2, row))
  const shareOf = (row: Row | undefined) => {
    const whole = {ratio: 1, percent: 100}[meaningOf(value) as string]
    return row && whole ? Number(value.of(row)) / whole : Number.NaN
  }
  const columns: Column<readonly Row[]>[] = [
    {
      title: titleOfColumn(place),
      cell: (own) => (own === foot ? 'All' : cellOf(place, own[0] ?? [], linkTo)),
    },
    ...names.map(
      ([key, named]): Column<readonly Row[]> => ({
        title: isTotalOf(1, named) && series.of(named) === null ? 'All' : words(textOf(series, named)),
        kind: 'number',
        cell: (own) => {
          const row = own.find((one) => keyOf(one) === key)
          return row ? cellOf(value, row, linkTo) : '–'
        },
        shade: (own) => shadeOf(shareOf(own.find((one) => keyOf(one) === key))),
      }),
    ),
  ]
  return table(columns, (isNewestFirst ? rows.toReversed() : rows).slice(0, most), foot)
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

const WEEKDAYS = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun']
const MOST_WEEKS = 54

/** Weeks of days, each with what happened on it in words, shaded by their tone. */
function renderCalendar(block: Block, linkTo: LinkTo): Html | string {
  const [day, what] = listShown(block)
  const rows = new Map(block.rows.map((row) => [String(day?.of(row)), row]))
  const days = [...rows.keys()].sort()
  const [first = '', last = ''] = [days[0], days.at(-1)]
  if (!day || !what || rows.size < block.rows.length || !days.every(isCalendarDate))
    return 'A calendar needs a column of days, one row for each, and what happened on it.'
  const monday = addDays(first, -((new Date(first).getUTCDay() + 6) % 7))
  const weeks = Array.from({length: MOST_WEEKS + 1}, (_, week) => addDays(monday, 7 * week))
  const shown = weeks.filter((week) => week <= last)
  if (shown.length > MOST_WEEKS) return `A calendar shows ${MOST_WEEKS} weeks: its days span more.`
  const columns = WEEKDAYS.map((title, index): Column<string> => {
    const rowOf = (week: string) => rows.get(addDays(week, index))
    const words = (row: Row | undefined) => row && html` ${cellOf(what, row, linkTo)}`
    return {
      title,
      cell: (week) => html`<span class="muted">${addDays(week, index).slice(5)}</span>${words(rowOf(week))}`,
      shade: (week) => `shade-${(rowOf(week) && what.beside(rowOf(week) ?? [], 'tone')) ?? 'none'}`,
    }
  })
  return html`<div class="calendar">${table([{title: 'Week of', cell: (week) => week}, ...columns], shown)}</div>`
}

/** A chart, with its values below it where they are asked for; of one place only the values. */
function renderDrawn(
  shape: Chart['shape'],
  block: Block,
  linkTo: LinkTo,
  options: Options,
  notes: readonly StandingNote[],
): Html | string {
  const {title, values, range} = options
  const drawn = readDrawn(block, shape)
  if (typeof drawn === 'string') return drawn
  if (range !== undefined && !drawn.places.every((place) => /^\d{4}-\d\d(-\d\d)?$/.test(place)))
    return `A range needs a chart whose places are days or months.`
  const hasOnePlace = drawn.places.length === 1 && values !== undefined
  const marked = shape === 'line' || shape === 'area' ? placeNotes(drawn.places, notes) : []
  const marks = [...Map.groupBy(marked.entries(), ([, {place}]) => place)].map(([place, found]) => ({
    place,
    name: found.map(([index]) => index + 1).join(', '),
  }))
  return html`${!hasOnePlace && renderChart({...drawn, title: title ?? drawn.title, shape, range, marks})}${
    !hasOnePlace &&
    marked.length > 0 &&
    html`<ol class="noted small">${marked.map(({note: {subject, text, who}}) => html`<li>${subject}: <span class="lines">${text}</span> <span class="muted">${who}</span></li>`)}</ol>`
  }${values !== undefined && html`<details${hasOnePlace && html` open`}><summary>${values}</summary>${listDrawn(block, linkTo, {shape})}</details>`}`
}

/** Notes that a chart has room for: the latest. */
const MOST_MARKS = 20

/** The place of each note on an axis of days or months: of days, the first that is not before it. */
function placeNotes(places: readonly string[], notes: readonly StandingNote[]) {
  const months = places.map((place) => place.slice(0, 7))
  if (!places.every((place, index) => isCalendarDate(place.length === 7 ? `${months[index]}-01` : place)))
    return []
  const isMonthly = new Set(months).size === places.length
  const placeOf = (day: string) =>
    isMonthly
      ? months.indexOf(day.slice(0, 7))
      : day < (places[0] ?? '')
        ? -1
        : places.findIndex((place) => place >= day)
  return notes
    .map((note) => ({note, place: placeOf(note.subject)}))
    .filter(({place}) => place !== -1)
    .slice(-MOST_MARKS)
}

/** What is drawn of rows: no totals. */
const readDrawn = (block: Block, shape: Shape) =>
  readSeries({...block, rows: block.rows.filter((row) => !isSo(block, 'is_total', row))}, shape)

/** The values of a chart as a table: of time, the newest first. */
function listDrawn(
  block: Block,
  linkTo: LinkTo,
  {shape, most}: {shape: Shape; most?: number},
): Html | string {
  const drawn = readDrawn(block, shape)
  if (typeof drawn === 'string') return drawn
  const isOfTime = shape === 'line' || shape === 'area'
  const rows = isOfTime ? block.rows.toReversed() : block.rows
  const shown = drawn.isMatrix
    ? renderMatrix(block, linkTo, {isNewestFirst: isOfTime, most})
    : renderMeant({...block, rows: rows.slice(0, most)}, linkTo)
  const all = drawn.places.length
  return html`${shown}${most !== undefined && all > most && html`<p class="muted small">The ${isOfTime ? 'last' : 'first'} ${most} of ${all}; the attachment has more.</p>`}`
}

const textOf = (column: Shown, row: Row) => String(column.of(row) ?? '–')

/** Series that a chart can tell apart by colour. */
const MOST_SERIES = 7

/**
 * What a chart shows, or why there is none: the first column names the places; the numbers after it are series or, where places come
 * more than once, the values of the one text column are.
 */
function readSeries(block: Block, shape: Shape) {
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
    /** Its second column names the series. */
    isMatrix: named !== undefined && named === others[0],
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
