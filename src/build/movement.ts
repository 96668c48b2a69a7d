import {z} from 'zod'
import {type Database, openDatabase, quoteLiteral} from '../store/database.ts'
import {MACROS, type Release} from '../store/release.ts'
import {computedRow, type ReleaseQueries, type RowOf, rowOf} from './release-row.ts'

/** How many deals are named; the others are counted. */
const NAMED = 12

const PARTS = ['open', 'funded', 'pipeline'] as const

/** A deal's contribution to the movement of each part between two moments, and what happened to it in words. */
export type Moved = RowOf<typeof movedRow>
const movedRow = rowOf('mart.movement', ['deal_id'], {
  open: 'sum',
  funded: 'sum',
  pipeline: 'sum',
  what: 'text?',
})

/** SQL of what happened to a deal, in words. */
const WHAT = `concat_ws(', ',
  case
    when coalesce(status_before, status_after) is null then null
    when status_before is null then 'came, ' || words(status_after)
    when status_after is null then 'is gone, was ' || words(status_before)
    when status_before <> status_after then words(status_before) || ' → ' || words(status_after)
  end,
  if(amount_before <> amount_after, usd(amount_before) || ' → ' || usd(amount_after), null),
  if(is_corrected, 'corrected later', null))`

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

/** SQL of what moved since the end of the day `$1`, by deal. */
const SINCE = `
  select
    deal_id,
    first(status_before order by day) as status_before,
    last(status_after order by day) as status_after,
    first(amount_before order by day) as amount_before,
    last(amount_after order by day) as amount_after,
    sum(open) as open,
    sum(funded) as funded,
    sum(pipeline) as pipeline,
    false as is_corrected
  from mart.movement
  where day > cast($1 as date)
  group by deal_id`

/** SQL of a deal's amount in each part, as `mart.movement` counts it. */
const AMOUNT_IN = {
  open: (deal: string) => `if(not starts_with(${deal}.status_class, 'ended'), ${deal}.loan_amount, 0)`,
  funded: (deal: string) => `if(${deal}.status_class = 'funded', ${deal}.loan_amount, 0)`,
  pipeline: (deal: string) => `if(${deal}.status_class = 'pipeline', ${deal}.loan_amount, 0)`,
}

/** SQL of what moved between two releases, by deal. */
const BETWEEN = `
  select
    deal_id,
    b.status as status_before,
    a.status as status_after,
    b.loan_amount as amount_before,
    a.loan_amount as amount_after,
    ${PARTS.map((part) => `${AMOUNT_IN[part]('a')} - ${AMOUNT_IN[part]('b')} as ${part}`).join(',\n    ')},
    deal_id in (from memory.main.corrected) as is_corrected
  from memory.main.deals_before as b
  full join memory.main.deals_after as a using (deal_id)`

async function readMoved(
  tables: ReleaseQueries,
  moves: string,
  {beyond = 0, offset = 0, limit = NAMED}: Which,
  params: string[] = [],
): Promise<Movements> {
  const largest = `from (${moves}) where open <> 0 or funded <> 0 or pipeline <> 0
    order by greatest(abs(open), abs(funded), abs(pipeline)) desc, deal_id`
  const sums = PARTS.map((part) => `cast(coalesce(sum(${part}), 0) as decimal(38, 2)) as ${part}`)
  return {
    totals: await tables.one(
      totalsRow,
      `select count(*) as deals, ${sums.join(', ')} from (${largest} offset ${beyond})`,
      params,
    ),
    moved: await tables.all(
      movedRow,
      `select deal_id, open, funded, pipeline, ${WHAT} as what ${largest} limit ${limit} offset ${beyond + offset}`,
      params,
    ),
  }
}

/** What moved since the end of a day. */
export const readMovedSince = (tables: ReleaseQueries, day: string, which: Which = {}): Promise<Movements> =>
  readMoved(tables, SINCE, which, [day])

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
  await db.run(MACROS)
  await readStandings(db, before, after, condition)
  return await readMoved(db, BETWEEN, which)
}

/** Finds which totals moved between two releases, and which deals and fields moved them. */
export async function diffReleases(before: Release, after: Release): Promise<TotalMovement[]> {
  await using db = await openDatabase({attach: []})
  await readStandings(db, before, after, 'true')
  return await readMovements(db)
}

/** The same over the tables that {@link readStandings} makes. */
export function readMovements(db: Database): Promise<TotalMovement[]> {
  return db.all(totalRow, MOVEMENTS)
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
  // Attached one after the other, since conditions name `release` and `kept`.
  for (const [name, {database, work}] of Object.entries({before, after})) {
    await db.run(
      `attach ${quoteLiteral(database)} as release (read_only);
       attach ${quoteLiteral(work)} as kept (read_only);
       create table memory.main.deals_${name} as
         select deal_id, status, status_class, loan_amount from release.core.deal as deal where ${condition};
       ${name === 'before' ? 'create table memory.main.known as select deal_id, status, loan_amount from release.core.deal' : buildCorrectedSql(before, after)};
       detach release;
       detach kept`,
    )
  }
}

function buildCorrectedSql({manifest: before}: Release, {manifest: after}: Release): string {
  const isLater = before.known_at <= after.known_at && before.as_of <= after.as_of
  return `create table memory.main.corrected as
    with said as (
      select
        deal_id,
        arg_max(change, version) as change,
        arg_max(status, version) as status,
        arg_max(loan_amount, version) as loan_amount
      from release.core.deal_history
      where valid_from <= cast(${quoteLiteral(before.known_at)} as timestamp)
        and business_date <= cast(${quoteLiteral(before.as_of)} as date)
      group by deal_id
      having change <> 'vanished'
    )
    select deal_id
    from memory.main.known
    full join said using (deal_id)
    where ${isLater} and (known.status, known.loan_amount) is distinct from (said.status, said.loan_amount)`
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

/** `measure` is one side's share of every total it counts in; `sign` is -1 before and 1 after. */
const MOVEMENTS = `
with side as (
  select deal_id, cast(-1 as decimal(38, 2)) as sign, status, status_class = 'funded' as is_funded,
    cast(loan_amount as decimal(36, 2)) as loan_amount
  from memory.main.deals_before
  union all
  select deal_id, cast(1 as decimal(38, 2)), status, status_class = 'funded', cast(loan_amount as decimal(36, 2))
  from memory.main.deals_after
),
measure(total, status, deal_id, sign, is_funded, loan_amount, value) as (
  select 'deals' as total, null as status, * exclude (status), sign as value from side
  union all select 'amount', null, * exclude (status), sign * loan_amount from side
  union all select 'funded_deals', null, * exclude (status), sign from side where is_funded
  union all select 'funded_amount', null, * exclude (status), sign * loan_amount from side where is_funded
  union all select 'deals', status, * exclude (status), sign from side
  union all select 'amount', status, * exclude (status), sign * loan_amount from side
),
total as (
  select
    total,
    status,
    coalesce(-sum(value) filter (where sign < 0), 0) as total_before,
    coalesce(sum(value) filter (where sign > 0), 0) as total_after
  from measure
  group by all
),
part as (
  select total, status, deal_id, sum(value) as movement
  from measure
  group by all
  having sum(value) <> 0
),
found as (
  select
    part.*,
    b.status as status_before, b.status_class as class_before, b.loan_amount as amount_before,
    a.status as status_after, a.status_class as class_after, a.loan_amount as amount_after,
    case
      when b.deal_id is null then 'appeared'
      when a.deal_id is null then 'left'
      when part.status is not null and a.status <> b.status then 'status'
      when part.total like 'funded%' and (a.status_class = 'funded') <> (b.status_class = 'funded')
        then case when a.status <> b.status then 'status' else 'status_class' end
      else 'loan_amount'
    end as change
  from part
  left join memory.main.deals_before as b on b.deal_id = part.deal_id
  left join memory.main.deals_after as a on a.deal_id = part.deal_id
)
select
  found.total,
  found.status,
  if(found.total like '%amount', total_before::varchar, total_before::bigint::varchar) as before,
  if(found.total like '%amount', total_after::varchar, total_after::bigint::varchar) as after,
  if(found.total like '%amount', (total_after - total_before)::varchar, (total_after - total_before)::bigint::varchar)
    as movement,
  list(
    {
      deal_id: deal_id,
      change: change,
      movement: if(found.total like '%amount', found.movement::varchar, found.movement::bigint::varchar),
      before: case when change <> 'appeared'
        then {status: status_before, status_class: class_before, loan_amount: amount_before::varchar} end,
      is_corrected: deal_id in (from memory.main.corrected),
      after: case when change <> 'left'
        then {status: status_after, status_class: class_after, loan_amount: amount_after::varchar} end
    }
    order by abs(found.movement) desc, deal_id
  ) as parts
from found
inner join total on total.total = found.total and total.status is not distinct from found.status
group by found.total, found.status, total_before, total_after
order by
  found.status nulls first,
  list_position(['deals', 'amount', 'funded_deals', 'funded_amount'], found.total)`
