-- The last complete walk is no more than one day older than as_of. It counts whatever known_at is: a walk that changed nothing
-- does not move known_at, but still proves the portfolio fresh.
-- severity: warn
-- next: Run `loantape sync` unless as_of is a past day; `loantape status` says how the last runs ended.
with
last_walk as (
  select max(business_date) as observed_until
  from raw.walk
  where
    stream = 'deal'
    and state = 'applied'
    and is_complete
    and business_date <= cast(getvariable('as_of') as date)
)

select
  cast(getvariable('as_of') as date) as as_of,
  observed_until
from last_walk
where coalesce(cast(getvariable('as_of') as date) - observed_until > 1, true)
