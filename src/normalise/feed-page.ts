import {parse} from 'csv-parse/sync'
import {businessDateOf, isCalendarDate, parseInstant} from '../clock.ts'
import type {RateFeed} from '../contract/rate-feed.ts'
import {codeOf, type LoantapeError, newError} from '../errors.ts'
import {findValue} from '../json.ts'
import type {RateObservation} from '../types.ts'

/** One answer of a feed, or its file. */
export interface FeedPage {
  /** Rows it holds, whatever became of them. */
  rows: number
  observations: RateObservation[]
  /** Rows without a value for their day. */
  empty: number
  /** `row 3: value: expected …`, never what it holds. */
  rejected: string[]
  /** Where a JSON feed says it goes on; null at its end. */
  nextCursor: string | null
}

/** Looks up a column in a row: text, or null where it has no value. */
type Lookup = (column: string) => string | null | undefined

/**
 * Reads the rates of one page; a row that cannot be read is rejected alone.
 *
 * @param timeZone whose day an instant is of
 * @throws ContractError `RATES_FORMAT` when it is no CSV with the columns named, or no JSON with an array of rows
 */
export function parseFeedPage(feed: RateFeed, text: string, timeZone: string): FeedPage {
  const {rows, rejected, nextCursor} = feed.format === 'csv' ? readCsv(feed, text) : readJson(feed, text)
  const page: FeedPage = {
    rows: rows.length + rejected.length,
    observations: [],
    empty: 0,
    rejected,
    nextCursor,
  }
  for (const {number, lookup} of rows) {
    const read = readRow(feed, lookup, timeZone)
    if (read === 'empty') page.empty += 1
    else if (typeof read === 'string') page.rejected.push(`row ${number}: ${read}`)
    else page.observations.push(read)
  }
  return page
}

interface Rows {
  rows: {number: number; lookup: Lookup}[]
  rejected: string[]
  nextCursor: string | null
}

function readCsv(feed: RateFeed, text: string): Rows {
  const rejected: string[] = []
  let records: string[][]
  try {
    records = parse(text, {
      bom: true,
      delimiter: feed.delimiter,
      skip_empty_lines: true,
      skip_records_with_error: true,
      trim: true,
      on_skip: (error) => {
        rejected.push(`line ${error?.lines ?? '?'}: ${codeOf(error)}`)
        return undefined
      },
    })
  } catch (error) {
    throw createFormatError(feed, `expected CSV (${codeOf(error)})`)
  }
  const [header = [], ...body] = records
  for (const column of [feed.date, ...(feed.rate ?? []), feed.value]) {
    if (!header.includes(column)) throw createFormatError(feed, `column '${column}' is not in its header`)
  }
  const rows = body.map((record, index) => ({
    number: index + 1,
    lookup: (column: string) => record[header.indexOf(column)],
  }))
  return {rows, rejected, nextCursor: null}
}

function readJson(feed: RateFeed, text: string): Rows {
  const body = parseExactJson(feed, text)
  const items = feed.rows === '' ? body : getPath(body, feed.rows)
  if (!Array.isArray(items)) throw createFormatError(feed, `expected an array at '${feed.rows || '(body)'}'`)
  const rows = items.map((item: unknown, index) => ({
    number: index + 1,
    lookup: (column: string) => {
      const value = getPath(item, column)
      if (value === null || typeof value === 'string') return value
      return value instanceof ExactNumber ? value.text : undefined
    },
  }))
  const cursor = getPath(body, 'next_cursor')
  const goesOn = getPath(body, 'has_more') === true
  if (goesOn && typeof cursor !== 'string') throw createFormatError(feed, 'has_more without a next_cursor')
  return {rows, rejected: [], nextCursor: goesOn && typeof cursor === 'string' ? cursor : null}
}

/** A JSON number as it was written: a double may hold another one. */
class ExactNumber {
  readonly text: string
  constructor(text: string) {
    this.text = text
  }
}

function parseExactJson(feed: RateFeed, text: string): unknown {
  try {
    return JSON.parse(text, (_key, value: unknown, context?: {source?: string}) =>
      typeof value === 'number' ? new ExactNumber(context?.source ?? String(value)) : value,
    )
  } catch {
    // The parser's own message quotes the body.
    throw createFormatError(feed, 'expected JSON')
  }
}

function getPath(value: unknown, path: string): unknown {
  return findValue(value, path.split('.'))
}

/** What a row says; `empty`, or what is wrong with it. */
function readRow(feed: RateFeed, lookup: Lookup, timeZone: string): RateObservation | string {
  const value = lookup(feed.value)
  if (value === null || (value !== undefined && feed.missing.includes(value.trim()))) return 'empty'
  const units = parseUnits(value?.trim() ?? '')
  if (units === null) return `${feed.value}: expected a decimal number with at most 8 decimals`
  const day = readDay(lookup(feed.date)?.trim() ?? '', feed.date_format, timeZone)
  if (!day) return `${feed.date}: expected a day from 1900 to 2199 (${feed.date_format})`
  const rate = readName(feed, lookup)
  if (rate === null) return `${feed.rate?.join(', ')}: expected the name of a rate, at most 200 characters`
  return {rate, ...day, units}
}

const CONTROLS = /\p{Cc}|\p{Cf}|\p{Zl}|\p{Zp}/u

function readName({rate, rate_name}: RateFeed, lookup: Lookup): string | null {
  if (rate_name !== undefined) return rate_name
  const parts = (rate ?? []).map((column) => lookup(column)?.trim() ?? '')
  const name = parts.join('/')
  return parts.includes('') || name.length > 200 || CONTROLS.test(name) ? null : name
}

/** Units of 10⁻⁸, as `decimal(18,8)` holds them. */
function parseUnits(text: string): bigint | null {
  const match = /^([+-]?)(\d{1,10})(?:\.(\d{1,8})0*)?$/.exec(text)
  if (!match) return null
  const [, sign, whole = '0', fraction = ''] = match
  const units = BigInt(whole) * 100_000_000n + BigInt(fraction.padEnd(8, '0'))
  return sign === '-' ? -units : units
}

/** Orders the values of one day; a day without a time comes first. */
function readDay(
  text: string,
  format: RateFeed['date_format'],
  timeZone: string,
): {rateDate: string; instant: bigint} | null {
  const found = format === 'us' ? readUsDay(text) : readIsoDay(text, timeZone)
  return found && isCalendarDate(found.rateDate) && /^(19|20|21)/.test(found.rateDate) ? found : null
}

function readUsDay(text: string): {rateDate: string; instant: bigint} | null {
  const match = /^(\d{1,2})\/(\d{1,2})\/(\d{4})$/.exec(text)
  if (!match) return null
  const [, month = '', day = '', year] = match
  return {rateDate: `${year}-${month.padStart(2, '0')}-${day.padStart(2, '0')}`, instant: 0n}
}

function readIsoDay(text: string, timeZone: string): {rateDate: string; instant: bigint} | null {
  if (isCalendarDate(text)) return {rateDate: text, instant: 0n}
  const instant = parseInstant(text)
  if (instant !== null) {
    const rateDate = businessDateOf(Number(instant / 1000n), {timeZone, dayCutoff: '00:00'})
    return {rateDate, instant}
  }
  // Without an offset nobody knows the instant, but the day stands there.
  const wallClock = parseInstant(`${text}Z`)
  return wallClock === null ? null : {rateDate: text.slice(0, 10), instant: wallClock}
}

function createFormatError(feed: RateFeed, problem: string): LoantapeError {
  return newError('RATES_FORMAT', `Feed '${feed.name}': ${problem}.`)
}
