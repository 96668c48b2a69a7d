import {computedRow, type ReleaseQueries, type RowOf, rowOf} from '../build/release-row.ts'
import {openDatabase, quoteLiteral} from '../store/database.ts'
import type {Release} from '../store/release.ts'

/** How many deals are named; the others are counted. */
export const NAMED = 12

export const PARTS = ['open', 'funded', 'pipeline'] as const

/** A deal's contribution to the movement of each part between two moments. */
export type Moved = RowOf<typeof movedRow>
const movedRow = rowOf('core.deal', ['deal_id'], {
  status_before: 'text?',
  status_after: 'text?',
  amount_before: 'decimal?',
  amount_after: 'decimal?',
  open: 'sum',
  funded: 'sum',
  pipeline: 'sum',
})

/** The totals of the movement, and some of the deals. */
export interface Movements {
  totals: RowOf<typeof totalsRow>
  moved: Moved[]
}

/** Which of the deals, largest first; by default those that are named. */
export interface Which {
  /** Skip this many in totals and list. */
  beyond?: number
  /** List so many of the others, from this one on. */
  offset?: number
  limit?: number
}
const totalsRow = computedRow({deals: 'count', open: 'sum', funded: 'sum', pipeline: 'sum'})

const amountOf = (moment: string, condition: string) =>
  `coalesce(sum(loan_amount) filter (where ${moment} and ${condition}), 0)`

const CONDITIONS = {
  open: `not starts_with(class, 'ended')`,
  funded: `class = 'funded'`,
  pipeline: `class = 'pipeline'`,
}

/** @param side SQL of deals as they stood before, after, or at both moments */
const buildMoved = (side: string) => `
with side as (${side}),
moved as (
  select
    deal_id,
    any_value(status) filter (where is_before) as status_before,
    any_value(status) filter (where is_after) as status_after,
    any_value(loan_amount) filter (where is_before) as amount_before,
    any_value(loan_amount) filter (where is_after) as amount_after,
    ${PARTS.map((part) => `${amountOf('is_after', CONDITIONS[part])} - ${amountOf('is_before', CONDITIONS[part])} as ${part}`).join(',\n    ')}
  from side
  group by deal_id
  having open <> 0 or funded <> 0 or pipeline <> 0
)`

async function readMoved(
  tables: ReleaseQueries,
  side: string,
  {beyond = 0, offset = 0, limit = NAMED}: Which,
  params: string[] = [],
): Promise<Movements> {
  const largest = `from moved order by greatest(abs(open), abs(funded), abs(pipeline)) desc, deal_id`
  const totals = await tables.one(
    totalsRow,
    `${buildMoved(side)}
     select count(*) as deals,
       ${PARTS.map((part) => `cast(coalesce(sum(${part}), 0) as decimal(38, 2)) as ${part}`).join(', ')}
     from (${largest} offset ${beyond})`,
    params,
  )
  const moved = await tables.all(
    movedRow,
    `${buildMoved(side)} ${largest} limit ${limit} offset ${beyond + offset}`,
    params,
  )
  return {totals, moved}
}

/** SQL of the deals at the end of a day, and now. */
const SINCE = `
    select
      position.deal_id,
      position.status,
      position.loan_amount,
      coalesce(status.class, 'unclassified') as class,
      position.from_day <= $1 and coalesce(position.to_day > $1, true) as is_before,
      position.to_day is null as is_after
    from work.position_span as position
    left join seed.status as status on status.status = position.status
    where (position.from_day <= $1 and coalesce(position.to_day > $1, true)) or position.to_day is null`

/** What moved since the end of a day. */
export const readMovedSince = (tables: ReleaseQueries, day: string, which: Which = {}): Promise<Movements> =>
  readMoved(tables, SINCE, which, [day])

/**
 * What is different in one release from another, whatever their days.
 *
 * @param condition SQL over `core.deal as deal`, judged in each of them; by default every deal counts
 */
export async function readMovedBetween(
  before: Release,
  after: Release,
  {condition = 'true', ...which}: Which & {condition?: string | undefined} = {},
): Promise<Movements> {
  await using db = await openDatabase({attach: []})
  // Attached one after the other, since conditions name `release` and `kept`.
  for (const [name, {database, work}] of Object.entries({before, after})) {
    await db.run(
      `attach ${quoteLiteral(database)} as release (read_only);
       attach ${quoteLiteral(work)} as kept (read_only);
       create table memory.main.deals_${name} as
         select deal_id, status, loan_amount, status_class as class from release.core.deal as deal where ${condition};
       detach release;
       detach kept`,
    )
  }
  const side = `
    select *, true as is_before, false as is_after from memory.main.deals_before
    union all
    select *, false, true from memory.main.deals_after`
  return await readMoved(db, side, which)
}
