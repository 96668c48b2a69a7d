-- Every unbroken spell of a deal in one status. Going missing, or vanishing and coming back, does not break one.
-- Built for other models and not kept.
-- grain: deal_id, spell
--
-- deal_id: the service's id
-- spell: 1 for the deal's first status
-- status: the status of the spell
-- status_class: pipeline, funded, ended_funded, ended_unfunded or unclassified
-- began_at: start of the request that first showed it, UTC
-- began_on: business date of that request
-- known_before: last business date on which the deal was known not to be in this spell; null when nothing before it
--   is known, as at the first walk
with
walks as (
  select
    business_date,
    recorded_at,
    coalesce(ended_at, started_at) as ended_at
  from raw.walk
  where
    stream = 'deal'
    and state = 'applied'
    and is_complete
    and business_date <= cast(getvariable('as_of') as date)
    and recorded_at <= cast(getvariable('known_at') as timestamp)
),

sightings as (
  select
    deal_id,
    position,
    status,
    observed_at,
    business_date,
    lag(status) over earlier as status_before,
    lag(position) over earlier as position_before,
    lag(observed_at) over earlier as observed_before,
    lag(business_date) over earlier as business_date_before
  from work.deal_observation
  where kind = 'seen'
  window earlier as (partition by deal_id order by position)
),

starts as (
  select *
  from sightings
  where status is distinct from status_before
),

-- A record in quarantine shows no status: from then on the one before is no longer known.
quarantined as (
  select
    starts.deal_id,
    starts.position,
    min(quarantine.observed_at) as observed_at
  from starts
  inner join raw.quarantine
    on
      quarantine.record_id = starts.deal_id
      and quarantine.observed_at < starts.observed_at
      and quarantine.observed_at > coalesce(starts.observed_before, timestamp '0001-01-01')
  where quarantine.stream = 'deal'
  group by
    starts.deal_id,
    starts.position
),

-- What first followed the last sighting in another status: this one, or the deal going missing.
bounded as (
  select
    starts.*,
    least(next_after.observed_at, quarantined.observed_at) as bound_at,
    next_after.recorded_at as bound_recorded_at
  from starts
  inner join work.deal_observation as next_after
    on next_after.deal_id = starts.deal_id and next_after.position = coalesce(starts.position_before, 0) + 1
  left join quarantined
    on quarantined.deal_id = starts.deal_id and quarantined.position = starts.position
),

-- Every complete walk before that bound showed the deal as it was, or showed no such deal. The walk that stored the
-- bound may have ended before it, when the deal's own page was fetched last.
confirmed as (
  select
    bounded.*,
    case
      when by_end.business_date is not null and by_record.business_date is not null
        then least(by_end.business_date, by_record.business_date)
    end as walked_before
  from bounded
  asof left join walks as by_end on bounded.bound_at > by_end.ended_at
  asof left join walks as by_record on bounded.bound_recorded_at > by_record.recorded_at
)

select
  confirmed.deal_id,
  row_number() over (partition by confirmed.deal_id order by confirmed.position) as spell,
  confirmed.status,
  coalesce(status.class, 'unclassified') as status_class,
  confirmed.observed_at as began_at,
  confirmed.business_date as began_on,
  case
    when coalesce(confirmed.walked_before, confirmed.business_date_before) is not null
      then least(
        greatest(confirmed.walked_before, confirmed.business_date_before),
        confirmed.business_date
      )
  end as known_before
from confirmed
left join seed.status on status.status = confirmed.status
