-- The totals that differ between deals_before and deals_after, each with the deals that moved it.
-- `measure` is one side's share of every total it counts in; `sign` is -1 before and 1 after.
with side as (
  select deal_id, cast(-1 as decimal(38, 2)) as sign, status, status_class = 'funded' as is_funded,
    cast(loan_amount as decimal(36, 2)) as loan_amount
  from temp.deals_before
  union all
  select deal_id, cast(1 as decimal(38, 2)), status, status_class = 'funded', cast(loan_amount as decimal(36, 2))
  from temp.deals_after
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
  left join temp.deals_before as b on b.deal_id = part.deal_id
  left join temp.deals_after as a on a.deal_id = part.deal_id
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
