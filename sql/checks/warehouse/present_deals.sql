-- Certificate of the last walk that does not count the deals of table 'raw.deal_version'
with
last_walk as (
  from walk
  where stream = 'deal' and state = 'applied'
  order by recorded_at desc
  limit 1
),

latest as (
  from deal_version
  qualify row_number() over (partition by deal_id order by observed_at desc, seq desc) = 1
),

present as (
  select
    count(*) as deals,
    coalesce(sum(loan_amount), 0) as amount
  from latest
  where kind in ('seen', 'missing')
)

select
  walk_id,
  present_deals,
  deals,
  present_amount,
  amount
from last_walk, present
where
  (present_deals is distinct from deals or present_amount is distinct from amount)
  and not exists (from deal_version as version where version.recorded_at > last_walk.recorded_at)
