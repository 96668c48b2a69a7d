import {z} from 'zod'
import {type Database, openDatabase} from '../store/database.ts'
import type {Release} from '../store/release.ts'
import {rowOf} from './release-row.ts'

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

/** Finds which totals moved between two releases, and which deals and fields moved them. */
export async function diffReleases(before: Release, after: Release): Promise<TotalMovement[]> {
  await using db = await openDatabase({
    attach: [
      {path: before.database, alias: 'before', readOnly: true},
      {path: after.database, alias: 'after', readOnly: true},
    ],
  })
  return await readMovements(db)
}

/** The same over `core.deal` of two databases attached as `before` and `after`. */
export function readMovements(db: Database): Promise<TotalMovement[]> {
  return db.all(totalRow, MOVEMENTS)
}

/** `measure` is one side's share of every total it counts in; `sign` is -1 before and 1 after. */
const MOVEMENTS = `
with side as (
  select deal_id, cast(-1 as decimal(38, 2)) as sign, status, status_class = 'funded' as is_funded,
    cast(loan_amount as decimal(36, 2)) as loan_amount
  from before.core.deal
  union all
  select deal_id, cast(1 as decimal(38, 2)), status, status_class = 'funded', cast(loan_amount as decimal(36, 2))
  from after.core.deal
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
  left join before.core.deal as b on b.deal_id = part.deal_id
  left join after.core.deal as a on a.deal_id = part.deal_id
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
