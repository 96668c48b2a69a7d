-- The totals that differ between deals_before and deals_after, each with the deals that moved it.
with
side as (
  select deal_id, -1 as sign, status, status_class = 'funded' as is_funded, -cast(loan_amount as decimal(38, 2)) as amount
  from temp.deals_before
  union all
  select deal_id, 1 as sign, status, status_class = 'funded' as is_funded, cast(loan_amount as decimal(38, 2)) as amount
  from temp.deals_after
),

-- All deals of each side in few rows without an id, and each deal that differs.
counted as (
  select null as deal_id, sign, status, is_funded, sum(sign) as deals, sum(amount) as amount
  from side
  group by sign, status, is_funded
  union all
  select deal_id, sign, status, is_funded, sign as deals, amount
  from side
  semi join temp.moved_between using (deal_id)
),

-- What they are of every total they count in.
measure as (
  select 'deals' as total, null as status, deal_id, sign, cast(deals as decimal(38, 2)) as value from counted
  union all
  select 'amount', null, deal_id, sign, amount from counted
  union all
  select 'funded_deals', null, deal_id, sign, deals from counted where is_funded
  union all
  select 'funded_amount', null, deal_id, sign, amount from counted where is_funded
  union all
  select 'deals', status, deal_id, sign, deals from counted
  union all
  select 'amount', status, deal_id, sign, amount from counted
),

total as (
  select
    total,
    status,
    coalesce(-sum(value) filter (where sign < 0), 0) as total_before,
    coalesce(sum(value) filter (where sign > 0), 0) as total_after
  from measure
  where deal_id is null
  group by total, status
),

part as (
  select total, status, deal_id, sum(value) as movement
  from measure
  where deal_id is not null
  group by total, status, deal_id
  having sum(value) <> 0
),

found as (
  select
    part.*,
    moved.* exclude (deal_id),
    case
      when status_before is null then 'appeared'
      when status_after is null then 'left'
      when part.status is not null and status_after <> status_before then 'status'
      when part.total like 'funded%' and (class_after = 'funded') <> (class_before = 'funded')
        then if(status_after <> status_before, 'status', 'status_class')
      else 'loan_amount'
    end as change
  from part
  inner join temp.moved_between as moved using (deal_id)
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
      is_corrected: deal_id in (from temp.corrected),
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
  list_position(['amount', 'deals', 'funded_amount', 'funded_deals'], found.total)
