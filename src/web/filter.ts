import {isCalendarDate} from '../core/clock.ts'
import {quoteLiteral} from '../store/database.ts'
import filters from './filters.json' with {type: 'json'}
import {type Html, html} from './html.ts'

/**
 * The parameters that an address keeps from page to page; `is_of` is SQL: whether `core.deal as deal` has one of these values.
 * Without it, a parameter selects a release.
 */
const DIMENSIONS: Readonly<Record<string, {title: string; is_of?: string}>> = filters.dimensions

/** The filter that only names a release. */
export const ofAllDeals = ({values}: Filter): Filter => ({
  values: new Map([...values].filter(([name]) => name === 'as_of' || name === 'known_at')),
  condition: undefined,
})

/** The parts of a portfolio, as SQL; open is what has not ended. */
const PARTS: Readonly<Record<string, string>> = filters.parts

/** The deals that a page is about. */
export interface Filter {
  /** The values of each dimension, as in the address. */
  values: ReadonlyMap<string, readonly string[]>
  /** SQL over `core.deal as deal`; undefined for all deals. */
  condition: string | undefined
}

/** Reads a filter from an address; other parameters belong to the page. */
export function parseFilter(query: URLSearchParams): Filter {
  // A form sends an empty day if none was chosen; a status may really be blank.
  const entries = Object.entries(DIMENSIONS).map(([name, {is_of}]): [string, string[]] => [
    name,
    [...new Set(query.getAll(name))].filter((value) => value !== '' || is_of !== undefined),
  ])
  const values = new Map(entries.filter(([, buckets]) => buckets.length > 0))
  const conditions = [...values].flatMap(([name, buckets]) =>
    name === 'part'
      ? `(${buckets.map((part) => PARTS[part] ?? 'false').join(' or ')})`
      : (DIMENSIONS[name]?.is_of?.replace('{values}', () => buckets.map(quoteLiteral).join(', ')) ?? []),
  )
  return {values, condition: conditions.length === 0 ? undefined : conditions.join(' and ')}
}

/** What is wrong with an address, in words; undefined if nothing is. */
export function findFault({values}: Filter): string | undefined {
  // The engine stops reading a statement at a NUL byte.
  const cut = [...values].find(([, entries]) => entries.some((value) => value.includes('\0')))
  if (cut) return `${titleOf(cut[0])}: a NUL character, expected text.`
  const asOf = values.get('as_of')?.find((day) => !isCalendarDate(day))
  if (asOf !== undefined) return `As of '${asOf}': expected a day such as 2026-03-31.`
  const isMoment = (text: string) =>
    isCalendarDate(text.slice(0, 10)) &&
    /^.{10}(T([01]\d|2[0-3])(:[0-5]\d(:[0-5]\d(\.\d+)?)?)?Z?)?$/.test(text)
  const knownAt = values.get('known_at')?.find((text) => !isMoment(text))
  if (knownAt !== undefined)
    return `Known at '${knownAt}': expected a day or an instant in UTC, such as 2026-03-31 or 2026-03-31T12:00.`
  const part = values.get('part')?.find((name) => !Object.hasOwn(PARTS, name))
  return part === undefined ? undefined : `Part '${part}': expected one of ${Object.keys(PARTS).join(', ')}.`
}

/** The address of a page about the same deals, with these values of dimensions and parameters; an empty list leaves one out. */
export function addressOf(
  path: string,
  {values}: Filter,
  changes: Readonly<Record<string, readonly string[]>> = {},
): string {
  const query = new URLSearchParams()
  const all = new Map([...values, ...Object.entries(changes)])
  for (const [name, entries] of all) for (const entry of entries) query.append(name, entry)
  return query.size === 0 ? path : `${path}?${query}`
}

/** The address of the deals of a part of what the filter means; undefined where it has none of them. */
export function addressOfPart(
  filter: Filter,
  part: string,
  changes: Readonly<Record<string, readonly string[]>> = {},
): string | undefined {
  const set = filter.values.get('part') ?? [part]
  const isWithin = (inner: string, outer: string) =>
    inner === outer || (outer === 'open' && inner !== 'ended')
  const both = set.flatMap((one) => (isWithin(one, part) ? [one] : isWithin(part, one) ? [part] : []))
  return both.length === 0 ? undefined : addressOf('/deals', filter, {...changes, part: [...new Set(both)]})
}

/** The page of a deal. Browsers take `.` and `..` out of an address, also encoded: `~` before them keeps them. */
export const addressOfDeal = (dealId: string) =>
  `/deals/${encodeURIComponent(dealId.replace(/^(?=~|\.{1,2}$)/, '~'))}`

/** Whether viewers can read a table. @param viewerTables `LOANTAPE_VIEWER_TABLES`: `mart.*,core.deal` */
export function isForViewers(name: string, viewerTables: string | undefined): boolean {
  if (viewerTables === undefined) return true
  return viewerTables
    .split(/\s*,\s*/)
    .some((one) => one === name || (one.endsWith('.*') && name.startsWith(one.slice(0, -1))))
}

/** The title of a dimension. */
export const titleOf = (name: string) => DIMENSIONS[name]?.title ?? name

/** The filter as hidden fields of a form. */
export const hiddenFields = ({values}: Filter): Html =>
  html`${[...values].flatMap(([name, entries]) => entries.map((value) => html`<input type="hidden" name="${name}" value="${value}">`))}`
