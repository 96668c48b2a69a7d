import {parse} from 'csv-parse/sync'
import {z} from 'zod'
import {businessDateOf, isCalendarDate, parseInstant} from '../clock.ts'
import {findEnvelope, readPage} from '../contract/envelope.ts'
import {codeOf, type LoantapeError, newError} from '../errors.ts'
import {describeIssues, parseJson} from '../json.ts'
import type {RateObservation} from '../types.ts'

const text = z.string().min(1, 'expected a value').max(200, 'expected at most 200 characters')

/** How the answers of a feed are read: as CSV where `rate` says whose values they are, else as pages of the service's rates. */
export const feedParser = z.strictObject({
  name: z.string().regex(/^[a-z0-9][a-z0-9_-]{0,59}$/, 'expected lower-case letters, digits, - and _'),
  rate: text.optional(),
  date: text.default('date'),
  value: text.default('value'),
})

type FeedParser = z.output<typeof feedParser>

/** Where the rates of one provider are read; without `csv`, an http URL or a file, from `GET /rates` of the service. */
export type RateFeed = z.output<typeof rateFeed>
const rateFeed = feedParser
  .extend({
    csv: text
      .refine((csv) => !/^https?:\/\/[^/?#]*@/.test(csv), 'expected a URL without user and password')
      .optional(),
  })
  .refine(({csv, rate}) => (csv === undefined) === (rate === undefined), {
    path: ['rate'],
    error: 'expected beside csv, and only there',
  })

export const feedsFile = z
  .strictObject({feeds: z.array(rateFeed)})
  .refine(({feeds}) => new Set(feeds.map(({name}) => name)).size === feeds.length, {
    path: ['feeds'],
    error: 'expected each name once',
  })

/** A row of a feed: its rate; null without a value for its day; or what is wrong with it, never what it holds. */
export type RateRow = RateObservation | string | null

/** Whether a row could be read and has a value. */
export function isObservation(row: RateRow): row is RateObservation {
  return row !== null && typeof row !== 'string'
}

/**
 * Reads the rows of one answer of a feed; one that cannot be read says so alone.
 *
 * @param timeZone whose day an instant of the service is of
 * @throws ContractError `RATES_FEED` when it is no CSV with the columns named; `SOURCE_ENVELOPE` when it is no page of the service
 */
export function parseRates(feed: FeedParser, text: string, timeZone: string): RateRow[] {
  if (feed.rate !== undefined) return parseCsv({...feed, rate: feed.rate}, text)
  const body = parseJson(text)
  const {records} = readPage(body, findEnvelope(body))
  return records.map((record, index) => {
    const {data, error} = serviceRate.safeParse(record)
    if (error) return `row ${index + 1}: ${describeIssues(error).join('; ')}`
    const {provider, loan_program, effective_at: instant, rate_pct: units} = data
    const rateDate = businessDateOf(Number(instant / 1000n), {timeZone, dayCutoff: '00:00'})
    return {rate: `${provider}/${loan_program}`, rateDate, instant, units}
  })
}

function parseCsv({name, rate, date, value}: FeedParser & {rate: string}, text: string): RateRow[] {
  const skipped: string[] = []
  let records: string[][]
  try {
    records = parse(text, {
      bom: true,
      skip_empty_lines: true,
      skip_records_with_error: true,
      trim: true,
      on_skip(error) {
        skipped.push(`line ${error?.lines ?? '?'}: ${codeOf(error)}`)
        return undefined
      },
    })
  } catch (error) {
    throw createFeedError({name}, `expected CSV (${codeOf(error)})`)
  }
  const [header = [], ...body] = records
  const missing = [date, value].find((column) => !header.includes(column))
  if (missing !== undefined) throw createFeedError({name}, `column '${missing}' is not in its header`)
  const rows = body.map((record, index) => {
    const cell = (column: string) => record[header.indexOf(column)] ?? ''
    if (NO_VALUE.includes(cell(value))) return null
    const units = decimal.safeParse(cell(value))
    if (units.error) return `row ${index + 1}: ${describeIssues(units.error, value).join()}`
    const day = cell(date)
    if (!isCalendarDate(day) || !COMMON_YEARS.test(day))
      return `row ${index + 1}: ${date}: expected a day from 1900 to 2199 such as 2026-03-02`
    return {rate, rateDate: day, instant: 0n, units: units.data}
  })
  return [...rows, ...skipped]
}

/** A day without a value: empty, or as FRED writes holidays. */
const NO_VALUE = ['', '.']
const COMMON_YEARS = /^(19|20|21)/

/** Units of 10⁻⁸, as `decimal(18,8)` holds them. */
const decimal = z
  .string()
  .regex(/^[+-]?\d{1,10}(\.\d{1,8}0*)?$/, 'expected a decimal number with at most 8 decimals')
  .transform((text) => {
    const [whole = '', fraction = ''] = text.split('.')
    return BigInt(whole + fraction.slice(0, 8).padEnd(8, '0'))
  })

const word = z.string().regex(/^[^\p{C}\p{Zl}\p{Zp}]{1,99}$/u, 'expected a text of at most 99 characters')

const serviceRate = z.object({
  provider: word,
  loan_program: word,
  effective_at: z
    .string()
    .regex(COMMON_YEARS)
    .transform((text) => parseInstant(text))
    .pipe(z.bigint('expected an ISO 8601 instant with an offset')),
  rate_pct: z.number().transform(String).pipe(decimal),
})

export function createFeedError({name}: {name: string}, problem: string, cause?: unknown): LoantapeError {
  return newError('RATES_FEED', `Feed '${name}': ${problem}.`, {cause})
}
