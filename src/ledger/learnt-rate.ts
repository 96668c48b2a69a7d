import {z} from 'zod'
import type {World} from '../types.ts'
import type {Ledger} from './ledger.ts'

/** A learnt rate is forgotten after this long. */
const KEPT_MS = 24 * 3600 * 1000

const rateRow = z.object({rate_per_second: z.number()})

/** The rate that an earlier run arrived at with this source, requests per second; undefined when there is none. */
export function findLearntRate(ledger: Ledger, baseUrl: string, world: World): number | undefined {
  const row = ledger.db
    .prepare('select rate_per_second from learnt_rate where base_url = ? and learnt_at > ?')
    .get(baseUrl, world.realClock.now() - KEPT_MS)
  return row && rateRow.parse(row).rate_per_second
}

/** Keeps the rate this run arrived at, in place of every one that is forgotten. */
export function storeLearntRate(ledger: Ledger, baseUrl: string, ratePerSecond: number, world: World): void {
  ledger.db.prepare('delete from learnt_rate where learnt_at <= ?').run(world.realClock.now() - KEPT_MS)
  ledger.db
    .prepare('insert or replace into learnt_rate (base_url, rate_per_second, learnt_at) values (?, ?, ?)')
    .run(baseUrl, ratePerSecond, world.realClock.now())
}
