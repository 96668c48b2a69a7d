-- When anything about the business days up to $1 was last stored: a version, a mapped field, a rate, a list or the first walk of a
-- day.
with
told as (
  {versions}
  union all
  select recorded_at, business_date from history.raw.deal_confirmation
  union all
  select recorded_at, business_date from history.raw.deal_extra
  union all
  select recorded_at, business_date from history.raw.rate
  union all
  select min(recorded_at), business_date
  from history.raw.walk
  where state = 'applied' and stream = 'deal'
  group by business_date
  union all
  select walk.recorded_at, walk.business_date
  from history.raw.walk
  join history.raw.listing on listing.walk_id = walk.walk_id and listing.outcome = 'listed'
  where walk.state = 'applied'
)

select strftime(max(recorded_at), '%Y-%m-%d %H:%M:%S.%f')
from told
where business_date <= cast($1 as date)
