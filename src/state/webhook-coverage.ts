import {z} from 'zod'
import type {StateDb} from './state-db.ts'

/** How much of what a complete walk found webhooks had told of. */
export type WebhookCoverage = z.output<typeof coverageRow>
const coverageRow = z.object({
  walk_id: z.string(),
  /** ISO 8601, real clock. */
  settled_at: z.string(),
  /** Deals the walk found created, updated, restored or newly absent. */
  changes: z.number(),
  /** Those of them that no event since the begin of the walk before had named. */
  missed: z.number(),
})

const isoOf = (now: number) => new Date(now).toISOString()

/** Notes that a walk begins: what is received from now on may be of deals it has read already. */
export function noteWalkBegun(stateDb: StateDb, walkId: string, now: number): void {
  stateDb.insert('webhook_coverage', {walk_id: walkId, began_at: isoOf(now)})
}

/** The deals that events have named since a walk began; undefined where no webhooks were taken when it was settled. */
export function findDealsToldSince(stateDb: StateDb, walkId: string): Set<string> | undefined {
  const [beganAt] = stateDb.column(
    z.string(),
    'select began_at from webhook_coverage where walk_id = ? and settled_at is not null',
    [walkId],
  )
  if (beganAt === undefined) return undefined
  const sql = 'select distinct deal_id from webhook_event where received_at >= ?'
  return new Set(stateDb.column(z.string(), sql, [beganAt]))
}

/**
 * Notes what a walk that was noted when it began came to, and forgets those that came to nothing.
 *
 * @param found null where there is nothing to compare with
 */
export function settleWalkCoverage(
  stateDb: StateDb,
  walkId: string,
  found: {changes: number; missed: number} | null,
  now: number,
): void {
  const {changes, missed} = found ?? {changes: null, missed: null}
  stateDb.run('update webhook_coverage set settled_at = ?, changes = ?, missed = ? where walk_id = ?', [
    isoOf(now),
    changes,
    missed,
    walkId,
  ])
  stateDb.run('delete from webhook_coverage where settled_at is null')
}

/** What webhooks had told of the last walk; undefined where it could not be compared. */
export function findLastCoverage(stateDb: StateDb): WebhookCoverage | undefined {
  const last = stateDb.first(
    z.object({...coverageRow.shape, changes: z.number().nullable(), missed: z.number().nullable()}),
    `select walk_id, settled_at, changes, missed from webhook_coverage
     where settled_at is not null order by settled_at desc, rowid desc limit 1`,
  )
  return last && last.missed !== null ? coverageRow.parse(last) : undefined
}
