import {z} from 'zod'
import {type Database, openDatabase, quoteLiteral} from '../store/database.ts'
import type {Release, ReleaseManifest} from '../store/release.ts'
import {fillIn, readQuery} from '../store/sql.ts'
import {computedRow, type ReleaseQueries, type RowOf, rowOf} from './release-row.ts'

/** How many deals are named; the others are counted. */
const NAMED = 12

const PARTS = ['open', 'funded', 'pipeline'] as const

/** A deal's contribution to the movement of each part between two moments, and what happened to it in words. */
type Moved = RowOf<typeof movedRow>
const movedRow = rowOf('mart.movement', ['deal_id'], {
  open: 'sum',
  funded: 'sum',
  pipeline: 'sum',
  what: 'text?',
})

/** The totals of the movement, and some of the deals. */
export interface Movements {
  totals: RowOf<typeof totalsRow>
  moved: Moved[]
}
const totalsRow = computedRow({deals: 'count', open: 'sum', funded: 'sum', pipeline: 'sum'})

/** Which deals, largest first; by default the {@link NAMED} largest. */
export interface Which {
  /** Skip this many in totals and list. */
  beyond?: number
  /** List `limit` of the others, from this one on. */
  offset?: number
  limit?: number
}

async function readMoved(
  tables: ReleaseQueries,
  moves: 'moved_since' | 'moved_between',
  {beyond = 0, offset = 0, limit = NAMED}: Which,
  params: string[] = [],
): Promise<Movements> {
  const largest = fillIn(readQuery('moved'), {moves: readQuery(moves)})
  const sums = PARTS.map((part) => `cast(coalesce(sum(${part}), 0) as decimal(38, 2)) as ${part}`)
  return {
    totals: await tables.one(
      totalsRow,
      `select count(*) as deals, ${sums.join(', ')} from (${largest} offset ${beyond})`,
      params,
    ),
    moved: await tables.all(movedRow, `${largest} limit ${limit} offset ${beyond + offset}`, params),
  }
}

/** What moved since the end of a day. */
export const readMovedSince = (tables: ReleaseQueries, day: string, which: Which = {}): Promise<Movements> =>
  readMoved(tables, 'moved_since', which, [day])

/**
 * What differs between two releases, whatever their dates.
 *
 * @param condition SQL over `core.deal as deal`, applied to each release; by default every deal counts
 */
export async function readMovedBetween(
  before: Release,
  after: Release,
  {condition = 'true', ...which}: Which & {condition?: string | undefined} = {},
): Promise<Movements> {
  await using db = await openDatabase({attach: []})
  await db.run(readQuery('macros'))
  await readStandings(db, before, after, condition)
  return await readMoved(db, 'moved_between', which)
}

/** Finds which totals moved between two releases, and which deals and fields moved them. */
export async function diffReleases(before: Release, after: Release): Promise<TotalMovement[]> {
  await using db = await openDatabase({attach: []})
  await readStandings(db, before, after, 'true')
  return await readMovements(db)
}

/** The same over the tables that {@link readStandings} makes. */
export function readMovements(db: Database): Promise<TotalMovement[]> {
  return db.all(totalRow, readQuery('total_movement'))
}

/**
 * Makes `deals_before` and `deals_after`, the deals in each release, and `corrected`: deals whose state at the time of the
 * earlier release is different in the later one.
 */
async function readStandings(
  db: Database,
  before: Release,
  after: Release,
  condition: string,
): Promise<void> {
  const deals = fillIn(readQuery('deals_of_release'), {condition})
  // Attached one after the other, since conditions name `release` and `kept`.
  for (const [name, {database, work}] of Object.entries({before, after})) {
    await db.run(
      `attach ${quoteLiteral(database)} as release (read_only);
       attach ${quoteLiteral(work)} as kept (read_only);
       create table memory.main.deals_${name} as ${deals}`,
    )
    if (name === 'before')
      await db.run(
        'create table memory.main.known as select deal_id, status, loan_amount from release.core.deal',
      )
    else await findCorrected(db, before.manifest, after.manifest)
    await db.run('detach release; detach kept')
  }
}

async function findCorrected(db: Database, before: ReleaseManifest, after: ReleaseManifest): Promise<void> {
  const isLater = before.known_at <= after.known_at && before.as_of <= after.as_of
  await db.run(`create table memory.main.corrected as ${readQuery('corrected')} and ${isLater}`, [
    before.known_at,
    before.as_of,
  ])
}

/** A deal as one of two releases has it. */
const stateRow = rowOf('core.deal', ['status', 'status_class', 'loan_amount'])

/** What one deal adds to the movement of one total. */
export type MovementPart = z.output<typeof partRow>
const partRow = z.object({
  deal_id: z.string(),
  /** What moved the total: the deal is only in the later or earlier release, or this field of it differs. */
  change: z.enum(['appeared', 'left', 'status', 'status_class', 'loan_amount']),
  /** Decimal text, or a count. */
  movement: z.string(),
  /** The later release contradicts what the earlier one knew. */
  is_corrected: z.boolean(),
  before: stateRow.nullable(),
  after: stateRow.nullable(),
})

/** A total that deals moved, even if they cancel out; its parts add up to its movement, exactly. */
export type TotalMovement = z.output<typeof totalRow>
const totalRow = z.object({
  total: z.enum(['deals', 'amount', 'funded_deals', 'funded_amount']),
  /** The status whose deals are counted; null for those of every status. */
  status: z.string().nullable(),
  before: z.string(),
  after: z.string(),
  movement: z.string(),
  /** By size of the movement, largest first. */
  parts: z.array(partRow),
})
