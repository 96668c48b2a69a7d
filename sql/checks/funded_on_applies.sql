-- Each date in seed.funded_on is of a deal that was ever seen, and belongs to one of its funded spells: it is on or before the
-- day the spell began and after the day the previous one ended. In a release of a past date, a date between as_of and the last
-- known walk is no mistake; a date after both is.
-- severity: warn
-- next: Correct these lines of seeds/funded_on.csv in LOANTAPE_SQL_DIR.
with
seen as (
  select distinct deal_id
  from raw.deal_version
  where
    recorded_at <= cast(getvariable('known_at') as timestamp)
    and deal_id in (select deal_id from seed.funded_on)
),

latest as (
  select greatest(cast(getvariable('as_of') as date), max(business_date)) as day
  from raw.walk
  where stream = 'deal' and state = 'applied' and recorded_at <= cast(getvariable('known_at') as timestamp)
),

steps as (
  select
    deal_id,
    version,
    business_date,
    status_class = 'funded' as is_funded,
    lag(status_class, 1, 'none') over (partition by deal_id order by version) = 'funded' as was_funded
  from core.deal_history
  where deal_id in (select deal_id from seed.funded_on)
),

turns as (
  select
    deal_id,
    is_funded,
    business_date as began_on,
    lag(business_date) over (partition by deal_id order by version) as ended_before
  from steps
  where is_funded <> was_funded
),

placed as (
  select given.deal_id
  from seed.funded_on as given
  inner join turns
    on
      turns.deal_id = given.deal_id
      and turns.is_funded
      and turns.began_on >= given.funded_on
      and coalesce(turns.ended_before < given.funded_on, true)
)

select
  given.deal_id,
  given.funded_on,
  case
    when seen.deal_id is null then 'no such deal'
    when given.funded_on > latest.day then 'lies ahead'
    else 'no funding it belongs to'
  end as problem
from seed.funded_on as given
cross join latest
left join seen on seen.deal_id = given.deal_id
where
  seen.deal_id is null
  or given.funded_on > latest.day
  or (
    given.funded_on <= cast(getvariable('as_of') as date)
    and given.deal_id in (select deal_id from core.deal_history)
    and given.deal_id not in (select deal_id from placed)
  )
