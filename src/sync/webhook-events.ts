import {z} from 'zod'
import type {StateDb} from '../store/state-db.ts'

/** Deals named by events since a walk began, as JSON; undefined if the coverage of that walk was not recorded. */
export function findDealsToldSince(stateDb: StateDb, walkId: string | null): string | undefined {
  const told = '(select json_group_array(deal_id) from webhook_event where received_at >= began_at)'
  return stateDb.column(z.string(), `select ${told} from webhook_coverage where walk_id = ?`, [walkId])[0]
}

/** `found` is null if it cannot be compared. Events received since the walk's tape was begun count for the next walk. */
export function settleWalkCoverage(
  stateDb: StateDb,
  walkId: string,
  found: {changes: number; missed: number} | null,
  now: number,
): void {
  stateDb.run(
    `insert or replace into webhook_coverage (walk_id, began_at, settled_at, changes, missed)
     select name, begun_at, ?, ?, ? from tape where name = ?`,
    [new Date(now).toISOString(), found?.changes ?? null, found?.missed ?? null, walkId],
  )
}

/** Undefined if the last walk could not be compared. */
export function findLastCoverage(stateDb: StateDb) {
  return stateDb.first(
    z.object({
      walk_id: z.string(),
      /** ISO 8601, real clock. */
      settled_at: z.string(),
      /** Deals the walk found created, updated, restored or newly absent. */
      changes: z.number(),
      /** Those that no event named since the previous walk began. */
      missed: z.number(),
    }),
    `select walk_id, settled_at, changes, missed
     from (select * from webhook_coverage order by rowid desc limit 1)
     where missed is not null`,
  )
}

/** Events are kept this long, longer than any sender retries, and until a later walk was compared with them. */
const KEPT_DAYS = 4

/**
 * Durable when this returns; false if it was stored before. An event that names no deal is settled at once: no look and no walk
 * would see more.
 */
export function storeEvent(
  stateDb: StateDb,
  event: {eventId: string; type: string; dealId: string | null},
  now: number,
): boolean {
  const {eventId, type, dealId} = event
  const at = new Date(now).toISOString()
  const settled = dealId === null ? {settled_at: at, outcome: 'noted'} : {settled_at: null, outcome: null}
  const row = {event_id: eventId, received_at: at, type, deal_id: dealId ?? '', ...settled}
  return stateDb.insert('webhook_event', row, 'or ignore').changes === 1
}

/** Oldest first; their deals must be looked at again. `received_at` is ISO 8601, real clock. */
export function listWaitingEvents(stateDb: StateDb) {
  return stateDb.all(
    z.object({event_id: z.string(), received_at: z.string(), type: z.string(), deal_id: z.string()}),
    `select event_id, received_at, type, deal_id from webhook_event
     where settled_at is null order by received_at, event_id limit 10000`,
  )
}

/** Deals of the events still kept, settled or not; `received_at` of the last one is ISO 8601, real clock. */
export function listNamedDeals(stateDb: StateDb) {
  return stateDb.all(
    z.object({deal_id: z.string(), received_at: z.string()}),
    "select deal_id, max(received_at) as received_at from webhook_event where deal_id <> '' group by deal_id",
  )
}

/** Also deletes old settled events. A walk that was begun before an event may have missed its change. */
export function settleEvents(
  stateDb: StateDb,
  settled: {eventIds: readonly string[]; outcome: 'applied' | 'walked'; walkId?: string | undefined},
  now: number,
): void {
  const {eventIds, outcome, walkId = null} = settled
  stateDb.transaction(() => {
    stateDb.run(
      `update webhook_event set settled_at = ?, outcome = ?
       where event_id in (select value from json_each(?)) and settled_at is null
         and received_at <= coalesce((select begun_at from tape where name = ?), received_at)`,
      [new Date(now).toISOString(), outcome, JSON.stringify(eventIds), walkId],
    )
    stateDb.run(
      `delete from webhook_event
       where settled_at is not null and received_at < min(
         ?1, coalesce((select max(began_at) from webhook_coverage), ?1)
       )`,
      [new Date(now - KEPT_DAYS * 86_400_000).toISOString()],
    )
  })
}
