import {BIGINT, DATE, DECIMAL, DuckDBTimestampValue, VARCHAR} from '@duckdb/node-api'
import {parse} from 'csv-parse/sync'
import {z} from 'zod'
import {readPage} from '../contract/list.ts'
import {businessDateOf, isCalendarDate, parseInstant} from '../core/clock.ts'
import {codeOf, type LoantapeError, newError} from '../core/errors.ts'
import {describeIssues, parseJson} from '../core/json.ts'
import type {RateObservation} from '../core/types.ts'
import type {Database} from '../store/database.ts'
import {appendRows} from '../store/row-buffer.ts'

export async function stageRates(db: Database, observations: readonly RateObservation[]): Promise<void> {
  await db.run(
    'create or replace temp table read_rate (rate varchar, rate_date date, instant bigint, value decimal(18,8))',
  )
  const rows = observations.map(({rate, rateDate, instant, units}) => [rate, rateDate, instant, units])
  await appendRows(db, {table: 'read_rate', types: [VARCHAR, DATE, BIGINT, DECIMAL(18, 8)]}, rows)
}

/**
 * Appends the latest staged value of each day unless it is the last known one, or was read before that. `read` is the number of
 * days with a staged value.
 */
export async function appendRates(
  db: Database,
  {feed, observedAt, businessDate}: {feed: string; observedAt: bigint; businessDate: string},
  recorded: DuckDBTimestampValue,
): Promise<{read: number; appended: number}> {
  await db.run(
    `insert into history.raw.rate by name
     with latest as (
       from temp.read_rate
       qualify row_number() over (partition by rate, rate_date order by instant desc, rowid desc) = 1
     ),
     known as (
       select rate, rate_date, arg_max(value, seq) as value, max(observed_at) as observed_at
       from history.raw.rate
       where feed = $1
       group by rate, rate_date
     )
     select
       (select coalesce(max(seq), 0) from history.raw.rate)
         + row_number() over (order by rate, rate_date) as seq,
       $1 as feed,
       rate,
       rate_date,
       latest.value,
       $2 as observed_at,
       cast($3 as date) as business_date,
       $4 as recorded_at
     from latest
     left join known using (rate, rate_date)
     where known.value is distinct from latest.value and coalesce(known.observed_at <= $2, true)`,
    [feed, new DuckDBTimestampValue(observedAt), businessDate, recorded],
  )
  return db.one(
    z.object({read: z.coerce.number(), appended: z.coerce.number()}),
    `select
       (select count(distinct (rate, rate_date)) from temp.read_rate) as read,
       (select count(*) from history.raw.rate where recorded_at = $1) as appended`,
    [recorded],
  )
}

const text = z.string().min(1, 'expected a value').max(200, 'expected at most 200 characters')

/** How to read the answers of a feed: as CSV of one `rate`; without `rate`, as pages of the service's rates. */
export const feedParser = z.strictObject({
  name: z.string().regex(/^[a-z0-9][a-z0-9_-]{0,59}$/, 'expected lower-case letters, digits, - and _'),
  rate: text.optional(),
  date: text.default('date'),
  value: text.default('value'),
})

type FeedParser = z.output<typeof feedParser>

/** Where to read the rates of one provider: `csv` is an http URL or a file; without it, `GET /rates` of the service. */
export type RateFeed = z.output<typeof rateFeed>
const rateFeed = feedParser
  .extend({
    csv: text
      .refine((csv) => !/^https?:\/\/[^/?#]*@/.test(csv), 'expected a URL without user and password')
      .optional(),
  })
  .refine(({csv, rate}) => (csv === undefined) === (rate === undefined), {
    path: ['rate'],
    error: 'expected together with csv, and only then',
  })

export const feedsFile = z
  .strictObject({feeds: z.array(rateFeed)})
  .refine(({feeds}) => new Set(feeds.map(({name}) => name)).size === feeds.length, {
    path: ['feeds'],
    error: 'expected each name once',
  })

/** A row of a feed: its value; null if its day has none; or what is wrong with the row, never its content. */
type RateRow = RateObservation | string | null

/**
 * `timeZone` turns the service's instants into days.
 * @throws ContractError `RATES_FEED` if it is not CSV with the columns named; `SOURCE_ENVELOPE` if it is not a page of the
 *   service
 */
export function parseRates(feed: FeedParser, text: string, timeZone: string): RateRow[] {
  if (feed.rate !== undefined) return parseCsv({...feed, rate: feed.rate}, text)
  const {records} = readPage(parseJson(text))
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
  const records: string[][] = parse(text, {
    bom: true,
    skip_empty_lines: true,
    skip_records_with_error: true,
    trim: true,
    on_skip(error) {
      skipped.push(`line ${error?.lines ?? '?'}: ${codeOf(error)}`)
      return undefined
    },
  })
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

/** Texts for a day without a value: empty, or the `.` of FRED's holidays. */
const NO_VALUE = ['', '.']
const COMMON_YEARS = /^(19|20|21)/

/** In units of 10⁻⁸, as in `decimal(18,8)`. */
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
