import {z} from 'zod'
import {STREAMS} from '../contract/streams.ts'
import {newError} from '../core/errors.ts'
import type {Moment} from '../core/types.ts'
import {type Database, quoteLiteral} from './database.ts'
import {type ReleaseManifest, type SourceBridge, sourceBridgeSchema} from './release.ts'
import {readQuery} from './sql.ts'

/**
 * `asOf` defaults to the latest business date; none later than `today` is built. `knownAt` defaults to the last apply that
 * stored something about days up to `asOf`, so the release of a past date is always the one that was current that night.
 * @throws ConfigError `MOMENT_RANGE`, `RELEASE_NONE`
 */
export async function resolveMoment(
  db: Database,
  asked: {asOf?: string | undefined; knownAt?: string | undefined},
  today: string,
): Promise<Moment> {
  const {first, last} = await db.one(
    z.object({first: z.string().nullable(), last: z.string().nullable()}),
    `select
       min(business_date) as first,
       greatest(
         max(business_date),
         (select max(business_date) from history.raw.deal_version),
         (select max(business_date) from history.raw.deal_extra)
       ) as last
     from history.raw.walk
     where state = 'applied' and stream = 'deal'`,
  )
  if (first === null || last === null)
    throw newError('RELEASE_NONE', 'No walk has been applied yet: there is nothing to build from.')
  const asOf = asked.asOf ?? last
  const latest = today > last ? today : last
  if (asOf < first || asOf > latest) {
    throw newError('MOMENT_RANGE', `Date '${asOf}': expected ${first} (the first walk) to ${latest}.`)
  }
  return {asOf, knownAt: asked.knownAt ?? (await findLastTold(db, asOf))}
}

/** When anything about days up to `asOf` was last stored. */
function findLastTold(db: Database, asOf: string): Promise<string> {
  const versions = STREAMS.map(
    ({name}) => `select recorded_at, business_date from history.raw.${name}_version`,
  )
  const sql = readQuery('last_told', {versions: versions.join(' union all ')})
  return db.value(z.string(), sql, [asOf])
}

/**
 * Id and tape head of the last settle by `knownAt` (`2026-03-02 04:59:59.123456`, UTC); both '' if there was none. Settles that
 * store nothing new come after `knownAt`, so the same release gets the same name.
 */
export function readHistoryId(db: Database, knownAt: string): Promise<{historyId: string; tapeHead: string}> {
  return db.one(
    z.object({historyId: z.string(), tapeHead: z.string()}),
    `select
       coalesce(arg_max(history_id, seq), '') as "historyId",
       coalesce(arg_max(tape_head, seq), '') as "tapeHead"
     from history.raw.settle
     where recorded_at <= cast($1 as timestamp)`,
    [knownAt],
  )
}

export function momentOf({as_of, known_at}: Pick<ReleaseManifest, 'as_of' | 'known_at'>): Moment {
  return {asOf: as_of, knownAt: known_at.replace('T', ' ').replace('Z', '')}
}

/** @throws ConfigError `MOMENT_RANGE` if no walk was stored by then */
export async function readSourceBridge(db: Database, {asOf, knownAt}: Moment): Promise<SourceBridge> {
  const bridge = await readBridge(
    db,
    `history.raw.walk
     where state = 'applied' and stream = 'deal'
       and business_date <= date ${quoteLiteral(asOf)} and recorded_at <= timestamp ${quoteLiteral(knownAt)}
     order by recorded_at desc
     limit 1`,
  )
  if (bridge) return bridge
  throw newError(
    'MOMENT_RANGE',
    `Instant '${knownAt}' in --known-at: no walk had been stored by then for ${asOf}.`,
  )
}

/** `from` is one walk of `raw.walk` or `mart.run`. */
export function readBridge(db: Database, from: string): Promise<SourceBridge | undefined> {
  return db.first(
    sourceBridgeSchema,
    `select
       walk_id,
       business_date,
       is_complete as complete,
       records::integer as records,
       distinct_records::integer as "distinct",
       amount_total,
       duplicates::integer as duplicates,
       quarantined::integer as quarantined,
       {deals: kept_quarantined_deals::integer, amount: kept_quarantined_amount} as kept_quarantined,
       {deals: kept_missing_deals::integer, amount: kept_missing_amount} as kept_missing,
       {deals: adjusted_deals::integer, amount: adjusted_amount} as adjusted,
       {deals: present_deals::integer, amount: present_amount} as present
     from ${from}`,
  )
}
