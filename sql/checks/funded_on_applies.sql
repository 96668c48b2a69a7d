-- Each date given in seed.funded_on is of a deal that was ever seen, and lies neither after as_of nor after the last walk
-- known: of a past date's release later dates are no mistake.
-- severity: warn
with
seen as (
  select distinct deal_id
  from raw.deal_version
  where recorded_at <= cast(getvariable('known_at') as timestamp)
),

latest as (
  select greatest(cast(getvariable('as_of') as date), max(business_date)) as day
  from raw.walk
  where stream = 'deal' and state = 'applied' and recorded_at <= cast(getvariable('known_at') as timestamp)
)

select
  given.deal_id,
  given.funded_on,
  case when seen.deal_id is null then 'no such deal' else 'lies ahead' end as problem
from seed.funded_on as given
cross join latest
left join seen on seen.deal_id = given.deal_id
where seen.deal_id is null or given.funded_on > latest.day
