import {DATE, DECIMAL, DuckDBTimestampValue, VARCHAR} from '@duckdb/node-api'
import {z} from 'zod'
import type {RateObservation} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {appendRows} from '../warehouse/row-buffer.ts'
import {type Conclude, settle} from './settle.ts'

/** What one reading of a feed showed; instants are microseconds since the epoch. */
export interface RateReading {
  feed: string
  observations: readonly RateObservation[]
  /** Business clock, when reading began. */
  observedAt: bigint
  businessDate: string
  /** Business clock. */
  now: bigint
  conclude: Conclude
}

const seqRow = z.object({seq: z.coerce.number()})
const SELECT_SEQ = 'select coalesce(max(seq), 0) as seq from warehouse.raw.rate'

/**
 * Appends the values that are new or differ from what was last known of their day; of several of one day the latest
 * counts. A value the feed no longer shows stays as it was.
 *
 * @returns how many were appended, and how many were known already
 */
export async function appendRates(
  db: Database,
  {feed, observations, observedAt, businessDate, now, conclude}: RateReading,
): Promise<{appended: number; known: number}> {
  const latest = pickLatest(observations)
  await db.run(
    'create or replace table memory.main.read_rate (rate varchar, rate_date date, value decimal(18,8))',
  )
  await appendRows(
    db,
    {catalog: 'memory', schema: 'main', table: 'read_rate', types: [VARCHAR, DATE, DECIMAL(18, 8)]},
    latest.map(({rate, rateDate, units}) => [rate, rateDate, units]),
  )
  const before = await db.one(seqRow, SELECT_SEQ)
  await settle(db, {kind: 'rates', walkId: null, now}, async (recordedAt) => {
    await db.run(
      `insert into warehouse.raw.rate by name
       with known as (
         select rate, rate_date, arg_max(value, seq) as value
         from warehouse.raw.rate
         where feed = $1
         group by rate, rate_date
       )
       select
         $5::bigint + row_number() over (order by read_rate.rate, read_rate.rate_date) as seq,
         $1 as feed,
         read_rate.rate,
         read_rate.rate_date,
         read_rate.value,
         $2 as observed_at,
         cast($3 as date) as business_date,
         $4 as recorded_at
       from memory.main.read_rate as read_rate
       left join known on known.rate = read_rate.rate and known.rate_date = read_rate.rate_date
       where known.value is distinct from read_rate.value`,
      [feed, new DuckDBTimestampValue(observedAt), businessDate, recordedAt, before.seq],
    )
    return conclude(recordedAt.micros)
  })
  const after = await db.one(seqRow, SELECT_SEQ)
  const appended = after.seq - before.seq
  return {appended, known: latest.length - appended}
}

function pickLatest(observations: readonly RateObservation[]): RateObservation[] {
  const latest = new Map<string, RateObservation>()
  for (const observation of observations) {
    const key = `${observation.rateDate} ${observation.rate}`
    const other = latest.get(key)
    if (!other || other.instant <= observation.instant) latest.set(key, observation)
  }
  return [...latest.values()]
}
