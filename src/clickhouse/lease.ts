import {z} from 'zod'
import {newError} from '../errors.ts'
import type {World} from '../types.ts'
import {type Place, STATE} from './layout.ts'
import {literal, quote} from './quote.ts'
import {isThereAlready, type Session} from './session.ts'

/** A holder that has not said so for so long is gone. */
const LEASE_MS = 30_000

/** The right to publish one source; disposing it gives it back. */
export interface Lease extends AsyncDisposable {
  /** Higher than that of every publication of the source before. */
  number: number
  /** A query of one row with the number of the last lease of the source: whether it is still this one. */
  lastSql: string
}

const leaseRow = z.object({number: z.coerce.number(), until: z.string(), now: z.string(), ends: z.string()})

/**
 * Takes the right to publish a source. ClickHouse knows no locks, but creates a table of a name once: `lease_<source>_<number>`,
 * whose comment says until when it holds. One that is not held any more is followed by the next number.
 *
 * @throws LockedError `PUBLISH_LOCKED`
 */
export async function takeLease(
  session: Session,
  place: Place,
  {source, leaseMs = LEASE_MS}: {source: string; leaseMs?: number | undefined},
  {realClock, log}: Pick<World, 'realClock' | 'log'>,
): Promise<Lease> {
  const named = literal(`^lease_${source}_[0-9]+$`)
  const number = `toUInt64(extract(name, '[0-9]+$'))`
  const from = `from system.tables where database = '${STATE}' and match(name, ${named})`
  const tableOf = (number: number) => `${STATE}.${quote(`lease_${source}_${number}`)}`
  const list = () =>
    session.rows(
      leaseRow,
      `select ${number} as number, comment as until, toString(now64(3, 'UTC')) as now,
         toString(now64(3, 'UTC') + toIntervalMillisecond(${leaseMs})) as ends
       ${from} order by number desc`,
    )
  const locked = (why: string) =>
    newError(
      'PUBLISH_LOCKED',
      `Another publication of source '${source}' to ${session.server} is under way: ${why}.`,
    )
  let [last] = await list()
  const {until} = last ?? {}
  while (last && last.until > last.now) {
    if (last.until !== until) throw locked(`it has just said so`)
    await realClock.sleep(Math.min(1000, leaseMs / 4))
    ;[last] = await list()
  }
  const [{published = 0, ends = ''} = {}] = await session.rows(
    z.object({published: z.coerce.number(), ends: z.string()}),
    `select max(number) as published, toString(now64(3, 'UTC') + toIntervalMillisecond(${leaseMs})) as ends
     from ${STATE}.published where source = ${literal(source)}`,
  )
  const own = Math.max(last?.number ?? 0, published) + 1
  try {
    await session.run(
      `create table ${tableOf(own)}${place.on} (nothing UInt8) engine = MergeTree order by nothing comment '${ends}'`,
    )
  } catch (error) {
    if (isThereAlready(error)) throw locked('it came first')
    throw error
  }
  const say = (until: string) =>
    session.run(`alter table ${tableOf(own)}${place.on} modify comment '${until}'`)
  const [first, ...before] = await list()
  if (first?.number !== own) {
    await session.run(`drop table if exists ${tableOf(own)}${place.on}`)
    throw locked('it came first')
  }
  for (const {number} of before) await session.run(`drop table if exists ${tableOf(number)}${place.on}`)
  let renewal: Promise<void> = Promise.resolve()
  const timer = setInterval(() => {
    renewal = renew().catch((error: unknown) => {
      // Whoever takes it then is seen before anything is shown to readers.
      log.warn({err: error}, 'the right to publish to ClickHouse could not be renewed')
    })
  }, leaseMs / 3)
  async function renew(): Promise<void> {
    const [last] = await list()
    if (last?.number === own) await say(last.ends)
  }
  return {
    number: own,
    lastSql: `select max(${number}) ${from}`,
    async [Symbol.asyncDispose]() {
      clearInterval(timer)
      await renewal
      // What cannot be said ends by itself.
      await say('').catch((error: unknown) => {
        log.info({err: error}, 'the right to publish to ClickHouse ends by itself')
      })
    },
  }
}
