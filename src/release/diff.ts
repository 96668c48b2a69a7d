import {z} from 'zod'
import {type Database, openDatabase} from '../warehouse/database.ts'
import type {Release} from './manifest.ts'

/** What one deal adds to the movement of one total. */
export interface MovementPart {
  deal_id: string
  /** What moved the total: the deal is only in the later or earlier release, or this field of it differs. */
  change: 'appeared' | 'left' | keyof DealState
  /** Decimal text, or a count. */
  movement: string
  before: DealState | null
  after: DealState | null
}

/** A total that deals moved, be it that they cancel out; its parts add up to its movement, exactly. */
export interface TotalMovement {
  total: 'deals' | 'amount' | 'funded_deals' | 'funded_amount'
  /** The status whose deals are counted; null for those of every status. */
  status: string | null
  before: string
  after: string
  movement: string
  /** By size of the movement, largest first. */
  parts: MovementPart[]
}

/** A deal as one of two releases has it. */
type DealState = z.output<typeof stateRow>
const stateRow = z.object({
  status: z.string(),
  status_class: z.string(),
  /** Decimal text, USD. */
  loan_amount: z.string(),
})
const partRow = z.object({
  total: z.enum(['deals', 'amount', 'funded_deals', 'funded_amount']),
  status: z.string().nullable(),
  total_before: z.string(),
  total_after: z.string(),
  total_movement: z.string(),
  deal_id: z.string(),
  change: z.enum(['appeared', 'left', 'status', 'status_class', 'loan_amount']),
  movement: z.string(),
  before: stateRow.nullable(),
  after: stateRow.nullable(),
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
export async function readMovements(db: Database): Promise<TotalMovement[]> {
  const rows = await db.all(partRow, MOVEMENTS)
  const groups = Map.groupBy(rows, ({total, status}) => `${total} ${status}`)
  return [...groups.values()].flatMap((group) => {
    const [first] = group
    if (!first) return []
    const {total, status, total_before, total_after, total_movement} = first
    const parts = group.map(({deal_id, change, movement, before, after}) => ({
      deal_id,
      change,
      movement,
      before,
      after,
    }))
    return {total, status, before: total_before, after: total_after, movement: total_movement, parts}
  })
}

/** One side's share of every total it counts in; `sign` is -1 before and 1 after. */
const MEASURES = [
  `select 'deals' as total, null as status, * exclude (status), sign as value from side`,
  `select 'amount', null, * exclude (status), sign * loan_amount from side`,
  `select 'funded_deals', null, * exclude (status), sign from side where is_funded`,
  `select 'funded_amount', null, * exclude (status), sign * loan_amount from side where is_funded`,
  `select 'deals', status, * exclude (status), sign from side`,
  `select 'amount', status, * exclude (status), sign * loan_amount from side`,
]

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
  ${MEASURES.join('\n  union all ')}
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
  if(found.total like '%amount', total_before::varchar, total_before::bigint::varchar) as total_before,
  if(found.total like '%amount', total_after::varchar, total_after::bigint::varchar) as total_after,
  if(found.total like '%amount', (total_after - total_before)::varchar, (total_after - total_before)::bigint::varchar)
    as total_movement,
  deal_id,
  change,
  if(found.total like '%amount', movement::varchar, movement::bigint::varchar) as movement,
  case when change <> 'appeared'
    then {status: status_before, status_class: class_before, loan_amount: amount_before::varchar} end as before,
  case when change <> 'left'
    then {status: status_after, status_class: class_after, loan_amount: amount_after::varchar} end as after
from found
inner join total on total.total = found.total and total.status is not distinct from found.status
order by
  found.status nulls first,
  list_position(['deals', 'amount', 'funded_deals', 'funded_amount'], found.total),
  abs(movement) desc,
  deal_id`
