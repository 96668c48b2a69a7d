import {statSync} from 'node:fs'
import {z} from 'zod'
import {type Database, openDatabase, type Queries, quoteLiteral, threadsFor} from '../store/database.ts'
import type {Release} from '../store/release.ts'
import {readQuery} from '../store/sql.ts'

const NAMED = 12

/** What moved between two moments: totals, and the deals that moved most, largest first. */
export type Movements = z.output<typeof movementsRow>
const parts = {open: z.string(), funded: z.string(), pipeline: z.string()}
const movementsRow = z.object({
  totals: z.object({deals: z.number(), ...parts}),
  moved: z.array(z.object({deal_id: z.string(), ...parts, what: z.string()})),
})

/** The deals to list, largest movement first. */
export interface Which {
  /** Leave out this many of the largest, in totals and list. */
  beyond?: number
  /** List `limit` of the rest, from this position on. */
  offset?: number
  limit?: number
}

const LARGEST_FIRST = 'greatest(abs(open), abs(funded), abs(pipeline)) desc, deal_id'

const fillMoved = (moves: string, which: Which) =>
  readQuery('moved', {
    moves,
    largest_first: LARGEST_FIRST,
    beyond: 0,
    offset: 0,
    limit: NAMED,
    ...which,
  })

export const readMovedSince = (tables: Queries, day: string, which: Which = {}): Promise<Movements> =>
  tables.one(movementsRow, fillMoved(readQuery('moved_since'), which), [day])

const MOVED_BETWEEN = 'select *, deal_id in (from temp.corrected) as is_corrected from temp.moved_between'

/** Compares releases of any dates. `condition` is SQL over `core.deal as deal`, applied to each release. */
export async function readMovedBetween(
  before: Release,
  after: Release,
  {condition, ...which}: Which & {condition?: string | undefined} = {},
): Promise<Movements> {
  await using db = await openFor(after)
  await db.run(readQuery('macros'))
  const {beyond = 0, offset = 0, limit = NAMED} = which
  // Those listed, and the larger ones: for all that moved it takes longer than all else.
  const deals = `(select deal_id from temp.moved_between order by ${LARGEST_FIRST} limit ${beyond + offset + limit})`
  await readStandings(db, before, after, {condition, deals})
  return await db.one(movementsRow, fillMoved(MOVED_BETWEEN, which))
}

export async function diffReleases(before: Release, after: Release): Promise<TotalMovement[]> {
  await using db = await openFor(after)
  await readStandings(db, before, after)
  return await readMovements(db)
}

const openFor = ({database}: Release) => openDatabase({threads: threadsFor(statSync(database).size)})

/** Over the tables that {@link readStandings} makes. */
export function readMovements(db: Database): Promise<TotalMovement[]> {
  return db.all(totalRow, readQuery('total_movement'))
}

/**
 * Makes `deals_before` and `deals_after`, the deals of each release; `moved_between`, those that differ; and `corrected`, of
 * `deals` the ones whose state at the time of the earlier release is another in the later one.
 */
async function readStandings(
  db: Database,
  before: Release,
  after: Release,
  {condition = 'true', deals = 'temp.moved_between'}: {condition?: string | undefined; deals?: string} = {},
): Promise<void> {
  const select = `select deal_id, status, status_class, loan_amount from release.core.deal as deal where ${condition}\n`
  // One release after the other, since conditions name `release` and `kept`.
  const open = ({database, work}: Release) =>
    db.run(
      `attach ${quoteLiteral(database)} as release (read_only); attach ${quoteLiteral(work)} as kept (read_only)`,
    )
  await open(before)
  await db.run(`create temp table deals_before as ${select}; detach release; detach kept`)
  await open(after)
  const [then, now] = [before.manifest, after.manifest]
  const isLater = then.known_at <= now.known_at && then.as_of <= now.as_of
  await db.run(
    `create temp view deals_after as ${select};
     attach ${quoteLiteral(before.database)} as before (read_only);
     create temp table moved_between as ${readQuery('moved_between')};
     create temp table corrected as ${readQuery('corrected', {...then, deals, is_later: isLater})}`,
  )
}

const stateRow = z.object({status: z.string(), status_class: z.string(), loan_amount: z.string()})

/** What one deal adds to the movement of one total. */
export type MovementPart = z.output<typeof partRow>
const partRow = z.object({
  deal_id: z.string(),
  /** The deal is only in the later or earlier release, or this field of it differs. */
  change: z.enum(['appeared', 'left', 'status', 'status_class', 'loan_amount']),
  /** A decimal text or a count. */
  movement: z.string(),
  /** Whether the later release contradicts what the earlier one knew. */
  is_corrected: z.boolean(),
  before: stateRow.nullable(),
  after: stateRow.nullable(),
})

/** Listed even if its movements cancel out; its parts add up to its movement exactly. */
export type TotalMovement = z.output<typeof totalRow>
const totalRow = z.object({
  total: z.enum(['deals', 'amount', 'funded_deals', 'funded_amount']),
  /** The status of the deals counted; null for deals of every status. */
  status: z.string().nullable(),
  before: z.string(),
  after: z.string(),
  movement: z.string(),
  /** Largest movement first. */
  parts: z.array(partRow),
})
