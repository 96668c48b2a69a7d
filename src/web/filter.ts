import {instantsOfWallTime, isCalendarDate, wallTimeOf} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {groupThousands} from '../core/money.ts'
import {quoteLiteral} from '../store/database.ts'
import {words} from './figures.ts'
import filters from './filters.json' with {type: 'json'}
import {type Html, html} from './html.ts'

/** Stays in the address from page to page. */
interface Dimension {
  title: string
  kind?: string
  /** A deal's value changes from day to day. */
  moves?: boolean
  /** SQL over `core.deal as deal` with `{values}`; undefined if it selects no deals. */
  is_of?: string
  /** The table it reads besides `core.deal`. */
  reads?: string
}

const DIMENSIONS: Readonly<Record<string, Dimension>> = filters.dimensions

/** Parameters that select no deals: the release, and what it is compared with. */
export const CLOCKS = ['as_of', 'known_at', 'against']

/** Keeps the release. */
export const ofAllDeals = ({values}: Filter): Filter => ({
  values: new URLSearchParams([...values].filter(([name]) => CLOCKS.includes(name))),
  condition: undefined,
  reads: [],
})

/** `open` is everything that has not ended. */
const PARTS: readonly string[] = filters.parts

export interface Filter {
  values: URLSearchParams
  /** SQL over `core.deal as deal`; undefined for all deals. */
  condition: string | undefined
  /** The tables that `condition` reads. */
  reads: readonly string[]
}

export const isMoving = ({values}: Filter) => [...values.keys()].some((name) => DIMENSIONS[name]?.moves)

/** What a filter does to changes and charts. */
export const renderChosen = (filter: Filter, asOf: string): Html | false =>
  filter.condition !== undefined &&
  html`<p class="muted small">Deals that meet the filter as of ${asOf}. ${isMoving(filter) ? 'Changes compare them with the deals that met it before; charts' : 'Changes since a day, charts'}, durations and rates follow the same deals through time, without those that are no longer listed.</p>`

const isMoment = (text: string) =>
  isCalendarDate(text.slice(0, 10)) && /^.{10}(T([01]\d|2[0-3])(:[0-5]\d(:[0-5]\d(\.\d+)?)?)?Z?)?$/.test(text)

/**
 * The last instant of a business day, or of an hour, minute or second in `timeZone` (in UTC if it ends in `Z`):
 * `YYYY-MM-DDTHH:MM:SS.ssssss`, UTC.
 */
export function endOfMoment(
  text: string,
  {timeZone, dayCutoff}: Pick<Config, 'timeZone' | 'dayCutoff'>,
): string {
  const given = text.replace(/Z$/, '')
  const end = `${given}${'YYYY-MM-DDT23:59:59.999999'.slice(given.length)}`
  if (given !== text) return end
  const cutoff = text.includes('T') ? '00:00' : dayCutoff
  const wall = Date.parse(`${end.slice(0, 19)}Z`) + Date.parse(`1970-01-01T${cutoff}Z`)
  const [earlier, later] = instantsOfWallTime(wall, timeZone)
  const instant = wallTimeOf(later, timeZone) > wall ? earlier : later
  // In a zone west of UTC, the last day of 9999 ends in the year 10000.
  return `${new Date(Math.min(instant, Date.parse('9999-12-31T23:59:59Z'))).toISOString().slice(0, 19)}${end.slice(19)}`
}

interface Kind {
  has(text: string): boolean
  expected: string
  unit?: string
  /** Removes the marks that people write around a value. */
  plain?(text: string): string
  write?(value: string): string
}

const KINDS: Record<string, Kind> = {
  day: {has: isCalendarDate, expected: 'a day such as 2026-03-31'},
  moment: {
    has: isMoment,
    expected: 'a day or an instant such as 2026-03-31, 2026-03-31T12:00, or 2026-03-31T16:00Z in UTC',
  },
  basis: {
    has: (text) => /^(day|week|month|year|\d{4}-\d\d-\d\d-[0-9a-f]{12})$/.test(text) || isCalendarDate(text),
    expected: 'day, week, month, year, a day such as 2026-03-31, or a release',
    write: (value) => (value === 'month' ? 'month end' : value.replace(/^(day|week|year)$/, '$1 before')),
  },
  part: {has: (name) => PARTS.includes(name), expected: `one of ${PARTS.join(', ')}`},
  amount: {
    has: (text) => /^(0|[1-9]\d{0,14})(\.\d{1,2})?$/.test(text),
    expected: 'dollars such as 1000000 or $1,000,000.00',
    unit: '$',
    write: (value) => `$${groupThousands(value)}`,
    // A comma is not a decimal point.
    plain: (text) =>
      /^\$? ?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?$/.test(text) ? text.replaceAll(/[$, ]/g, '') : text,
  },
  percent: {
    has: (text) => /^\d{1,9}(\.\d{1,7})?$/.test(text),
    expected: 'a percentage such as 75 or 72.5',
    unit: '%',
    write: (value) => `${value} %`,
    plain: (text) => text.replace(/ ?%$/, ''),
  },
}

const kindOf = (name: string) => KINDS[DIMENSIONS[name]?.kind ?? '']

const SITE = 'http://site.invalid'

/** An address of this site begins with `/`; undefined for any other. */
export function parseAddress(address: string): URL | undefined {
  const url = address.startsWith('/') ? URL.parse(address, SITE) : null
  return url?.origin === SITE && !url.pathname.startsWith('//') ? url : undefined
}

/** Other parameters belong to the page. */
export function parseFilter(query: URLSearchParams): Filter {
  const values = new URLSearchParams()
  const conditions: string[] = []
  const reads: string[] = []
  for (const [name, dimension] of Object.entries(DIMENSIONS)) {
    const kind = kindOf(name)
    // An invalid value stays as given, for the error message.
    const read = (text: string) => {
      const plain = kind?.plain?.(text) ?? text
      return kind?.has(plain) ? plain : text
    }
    // A form sends an empty day if none was chosen; a status may really be blank.
    const given = query.getAll(name).map((value) => (kind ? read(value.trim()) : value))
    const own = [...new Set(given)].filter((value) => !kind || value !== '')
    if (own.length === 0) continue
    for (const value of own) values.append(name, value)
    if (dimension.is_of !== undefined)
      conditions.push(dimension.is_of.replaceAll('{values}', () => own.map(quoteLiteral).join(', ')))
    if (dimension.reads !== undefined) reads.push(dimension.reads)
  }
  if (conditions.length === 0) return {values, condition: undefined, reads: []}
  return {values, condition: conditions.join(' and '), reads: ['core.deal', ...reads]}
}

/** One end of a range. */
const isBound = (name: string) => kindOf(name) && name !== 'part' && DIMENSIONS[name]?.is_of !== undefined

/** `names` are the parameters without which there is no fault, or another one. */
export function findFault({values, reads}: Filter, mayRead: (table: string) => boolean = () => true) {
  const wrong = (problem: string, ...names: string[]) => ({problem, names})
  const hidden = reads.find((table) => !mayRead(table))
  if (hidden !== undefined)
    return wrong(`Its filter reads table '${hidden}', which is not for viewers.`, ...values.keys())
  // The engine stops reading a statement at a NUL byte.
  const cut = [...values].find(([, value]) => value.includes('\0'))
  if (cut) return wrong(`${titleOf(cut[0])}: a NUL character, expected text.`, cut[0])
  for (const [name, value] of values) {
    const kind = kindOf(name)
    if (!kind) continue
    if (!kind.has(value)) return wrong(`${titleOf(name)} '${value}': expected ${kind.expected}.`, name)
    const all = name === 'part' ? [value] : values.getAll(name)
    if (all.length > 1) return wrong(`${titleOf(name)} '${all.join("', '")}': expected one.`, name)
  }
  return undefined
}

export function addressOf(
  path: string,
  {values}: Filter,
  changes: URLSearchParams | Record<string, string> = {},
): string {
  const [query, changed] = [new URLSearchParams(), new URLSearchParams(changes)]
  for (const name of new Set([...values.keys(), ...changed.keys()]))
    for (const value of (changed.has(name) ? changed : values).getAll(name)) query.append(name, value)
  return query.size === 0 ? path : `${path}?${query}`
}

/** Within the filter; undefined if part and filter do not overlap. */
export function addressOfPart(filter: Filter, part: string, changes?: URLSearchParams): string | undefined {
  const set = filter.values.has('part') ? filter.values.getAll('part') : [part]
  const isWithin = (inner: string, outer: string) =>
    inner === outer || (outer === 'open' && inner !== 'ended')
  const both = set.flatMap((one) => (isWithin(one, part) ? [one] : isWithin(part, one) ? [part] : []))
  const changed = new URLSearchParams(changes)
  changed.delete('part')
  for (const one of both) changed.append('part', one)
  return both.length === 0 ? undefined : addressOf('/deals', filter, changed)
}

/** Browsers remove `.` and `..` from a path, even encoded; a leading `~` keeps them. */
export const addressOfDeal = (dealId: string) =>
  `/deals/${encodeURIComponent(dealId.replace(/^(?=~|\.{1,2}$)/, '~'))}`

/** Tables that name no deal: the catalogue, and the names of statuses and states. */
const FOR_ALL = 'information_schema.*,pg_catalog.*,seed.status,seed.us_state'

/** `viewerTables` is `LOANTAPE_VIEWER_TABLES`: `mart.*,core.deal`. */
export function isForViewers(name: string, viewerTables: string | undefined): boolean {
  if (viewerTables === undefined) return true
  return `${FOR_ALL},${viewerTables}`
    .split(/\s*,\s*/)
    .some((one) => one === name || (one.endsWith('.*') && name.startsWith(one.slice(0, -1))))
}

export const titleOf = (name: string) => DIMENSIONS[name]?.title ?? name

export const wordValue = (name: string, value: string): string => (kindOf(name)?.write ?? words)(value)

/** `offered` are rows of `sql/queries/offered.sql`; `maySave` offers saving. */
export function renderFilter(
  here: string,
  {filter, query}: {filter: Filter; query: URLSearchParams},
  given: {
    offered: readonly {dimension: string; bucket: string}[]
    saved: readonly {name: string; filter: Filter}[]
    maySave: boolean
  },
): Html {
  // A deal's own page has no list to filter.
  const path = here.startsWith('/deals/') ? '/deals' : here
  const {values} = filter
  const parts = PARTS.map((bucket) => ({dimension: 'part', bucket}))
  const buckets = Object.groupBy([...parts, ...given.offered], ({dimension}) => dimension)
  const choices = Object.keys(DIMENSIONS).map((name) => {
    const rows = buckets[name]
    if (!rows) return undefined
    const chosen = values.getAll(name)
    const all = new Set([...chosen, ...rows.map(({bucket}) => bucket)])
    return html`<fieldset><legend>${titleOf(name)}</legend>
${[...all].map((value) => html`<label><input type="checkbox" name="${name}" value="${value}"${chosen.includes(value) && html` checked`}> ${words(value)}</label>\n`)}</fieldset>`
  })
  const bounds = Object.keys(DIMENSIONS).filter(isBound)
  const ranges = bounds.map((name) => {
    const unit = kindOf(name)?.unit
    const type = unit === undefined ? html`type="date"` : html`inputmode="decimal"`
    return html`<label>${titleOf(name)}${unit && `, ${unit}`} <input name="${name}" value="${values.get(name)}" ${type}></label>\n`
  })
  const kept = without(query, [...Object.keys(buckets), ...bounds])
  const ofPage = new URLSearchParams([...kept].filter(([name]) => DIMENSIONS[name]?.is_of === undefined))
  const address = addressOf(path, ofAllDeals(filter), ofPage)
  const saved = given.saved.find((one) => String(one.filter.values) === String(without(values, CLOCKS)))
  return html`<details class="filter"><summary>Filter</summary>
${given.saved.length > 0 && html`<p class="choices">Saved: ${given.saved.map((one) => html`<a href="${addressOf(path, one.filter, ofPage)}">${one.name.replaceAll('_', ' ')}</a> `)}</p>`}
<form action="${path}" autocomplete="off">
${hidden(kept)}
<div class="ranges">${ranges}</div>
<div class="dimensions">${choices}</div>
<button>Show</button></form>
${
  given.maySave &&
  filter.condition !== undefined &&
  html`<form method="post" action="/filters">${hidden([...values, ['path', address]])}
<p><label>Save what is chosen for everybody as <input name="save_as" required pattern="[\\w\\- ]{1,100}" title="Letters, digits, spaces, _ and -"></label> <button>Save</button></p></form>`
}${given.maySave && saved && renderRemoval('/filters', saved.name, [...values, ['path', address]])}</details>`
}

/** Removes what was saved for everybody. */
export function renderRemoval(action: string, name: string, others: Iterable<[string, string]>): Html {
  return html`<details class="ask"><summary>Remove ${name.replaceAll('_', ' ')}</summary><form method="post" action="${action}">
${hidden([['remove', name], ...others])}
<p>Nobody will find it here any more. It stays among the last 100 under <a href="/runs#what-people-did">What people did</a>.</p>
<button>Remove</button></form></details>`
}

export const hidden = (parameters: Iterable<[name: string, value: string]>): Html =>
  html`${[...parameters].map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}`

/** A form for some parameters that keeps the others. */
export function renderFields(
  query: URLSearchParams,
  fields: readonly (readonly [name: string, label?: string, type?: string, value?: string])[],
): Html | false {
  const names = fields.map(([name]) => name)
  return (
    names.length > 0 &&
    html`<form class="against" autocomplete="off">${hidden(without(query, names))}
${fields.map(([name, label = words(name), type = 'text', value]) => html`<label>${label} <input type="${type}" name="${name}" value="${value ?? query.get(name)}"></label> `)}<button>Show</button></form>`
  )
}

/** Leads to the first page of a list. */
export const without = (query: URLSearchParams, names: readonly string[]) =>
  new URLSearchParams([...query].filter(([name]) => name !== 'page' && !names.includes(name)))
