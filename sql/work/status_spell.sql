-- Every unbroken spell of a deal in one status. Going missing, or vanishing and coming back, does not break one.
-- grain: deal_id, spell
-- per: deal_id
--
-- deal_id: the service's id
-- spell: 1 for the deal's first status
-- status: the status of the spell
-- status_class: pipeline, funded, ended_funded, ended_unfunded or unclassified
-- status_before: the status of the spell before; null in the first
-- class_before: its class
-- began_at: start of the request that first showed it, UTC
-- began_on: business date of that request
-- known_before: last business date on which the deal was known not to be in this spell; null when nothing before it
--   is known, as at the first walk
-- is_current: no spell follows
-- next_status: the status of the spell after; null in the last
-- next_class: its class
-- next_began_on: its began_on
with
walks as (
  select
    business_date,
    recorded_at,
    coalesce(ended_at, started_at) as ended_at,
    lower(regexp_replace(filter, '^[^=]*=', '')) as only_status
  from raw.walk
  where
    stream = 'deal'
    and state = 'applied'
    and is_complete
    and business_date <= cast(getvariable('as_of') as date)
    and recorded_at <= cast(getvariable('known_at') as timestamp)
),

starts as (
  select
    deal_id,
    position,
    status,
    observed_at,
    business_date,
    recorded_at,
    status_before,
    sighted_before,
    sighted_before_seq,
    sighted_before_on
  from work.deal_observation
  where kind = 'seen' and status is distinct from status_before
),

-- For a deal that came back: what first followed its last sighting.
missed as (
  select
    deal_id,
    sighted_before_seq,
    arg_min(observed_at, position) as observed_at,
    arg_min(recorded_at, position) as recorded_at
  from work.deal_observation
  where kind <> 'seen'
  group by
    deal_id,
    sighted_before_seq
),

-- A record in quarantine shows no status: from then on the previous one is no longer known.
quarantined as (
  select
    starts.deal_id,
    starts.position,
    min(quarantined.observed_at) as observed_at
  from starts
  inner join work.quarantined
    on
      quarantined.deal_id = starts.deal_id
      and quarantined.observed_at < starts.observed_at
      and quarantined.observed_at > coalesce(starts.sighted_before, timestamp '0001-01-01')
  group by
    starts.deal_id,
    starts.position
),

-- The own page showed the deal as it was.
confirmed_unchanged as (
  select
    starts.deal_id,
    starts.position,
    max(confirmation.business_date) as business_date
  from starts
  inner join raw.deal_confirmation as confirmation
    on
      confirmation.deal_id = starts.deal_id
      and confirmation.observed_at > starts.sighted_before
      and confirmation.observed_at < starts.observed_at
  where
    confirmation.business_date <= cast(getvariable('as_of') as date)
    and confirmation.recorded_at <= cast(getvariable('known_at') as timestamp)
  group by
    starts.deal_id,
    starts.position
),

-- What first followed the last sighting in another status: this one, or the deal going missing.
bounded as (
  select
    starts.*,
    least(coalesce(missed.observed_at, starts.observed_at), quarantined.observed_at) as bound_at,
    coalesce(missed.recorded_at, starts.recorded_at) as bound_recorded_at
  from starts
  left join missed
    on missed.deal_id = starts.deal_id and missed.sighted_before_seq = starts.sighted_before_seq
  left join quarantined
    on quarantined.deal_id = starts.deal_id and quarantined.position = starts.position
),

-- Every complete walk before that bound showed the deal as it was, or showed no such deal; of one with an id that could not be
-- read this is taken for granted. A walk of one status tells nothing of a deal that goes from one other status to another. The
-- walk that stored the bound may have ended before it, when the deal's own page was fetched last. Many deals share a bound.
by_end as (
  select
    bounds.bound_at,
    walks.business_date,
    walks.only_status
  from (select distinct bound_at from bounded) as bounds
  asof inner join walks on bounds.bound_at > walks.ended_at
),

by_record as (
  select
    bounds.bound_recorded_at,
    walks.business_date
  from (select distinct bound_recorded_at from bounded) as bounds
  asof inner join walks on bounds.bound_recorded_at > walks.recorded_at
),

confirmed as (
  select
    bounded.deal_id,
    bounded.position,
    bounded.status,
    bounded.status_before,
    bounded.observed_at,
    bounded.business_date,
    coalesce(status.class, 'unclassified') as status_class,
    case when bounded.status_before is not null then coalesce(status_before.class, 'unclassified') end as class_before,
    case
      when
        by_end.business_date is not null
        and by_record.business_date is not null
        and coalesce(by_end.only_status in ('', bounded.status, bounded.status_before), true)
        then least(by_end.business_date, by_record.business_date)
    end as walked_before,
    greatest(walked_before, bounded.sighted_before_on, unchanged.business_date) as last_known_on,
    case when last_known_on is not null then least(last_known_on, bounded.business_date) end as known_before
  from bounded
  left join by_end on by_end.bound_at = bounded.bound_at
  left join by_record on by_record.bound_recorded_at = bounded.bound_recorded_at
  left join confirmed_unchanged as unchanged
    on unchanged.deal_id = bounded.deal_id and unchanged.position = bounded.position
  left join seed.status on status.status = bounded.status
  left join seed.status as status_before on status_before.status = bounded.status_before
)

select
  deal_id,
  row_number() over spells as spell,
  status,
  status_class,
  status_before,
  class_before,
  observed_at as began_at,
  business_date as began_on,
  known_before,
  lead(position) over spells is null as is_current,
  lead(status) over spells as next_status,
  lead(status_class) over spells as next_class,
  lead(business_date) over spells as next_began_on
from confirmed
window spells as (partition by deal_id order by position)
