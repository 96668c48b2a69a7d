import {z} from 'zod'
import type {World} from '../types.ts'
import type {StateDb} from './state-db.ts'

/** A learnt rate is forgotten after this long. */
const KEPT_MS = 24 * 3600 * 1000

/** The rate that an earlier run arrived at with this source, requests per second; undefined when there is none. */
export function findLearntRate(stateDb: StateDb, baseUrl: string, world: World): number | undefined {
  const sql = 'select rate_per_second from learnt_rate where base_url = ? and learnt_at > ?'
  return stateDb.column(z.number(), sql, [baseUrl, world.realClock.now() - KEPT_MS]).at(0)
}

/** Keeps the rate this run arrived at, in place of every one that is forgotten. */
export function storeLearntRate(
  stateDb: StateDb,
  baseUrl: string,
  ratePerSecond: number,
  world: World,
): void {
  const now = world.realClock.now()
  stateDb.run('delete from learnt_rate where learnt_at <= ?', [now - KEPT_MS])
  const learnt = {base_url: baseUrl, rate_per_second: ratePerSecond, learnt_at: now}
  stateDb.insert('learnt_rate', learnt, 'or replace')
}
