-- Every version of the fields that fields.json maps: a row for each change in what was known of them.
-- grain: deal_id, version
-- per: deal_id
-- check: unique(deal_id, version)
-- check: not_null(deal_id, version, valid_from, business_date)
-- check: references(deal_id, core.deal_history.deal_id)
--
-- deal_id: the service's id
-- version: 1 for the first, without gaps; not that of core.deal_history
-- valid_from: start of the request that showed it, UTC
-- valid_to: valid_from of the next version, UTC; null when nothing known supersedes this one
-- business_date: the day this version counts for
{described}
-- unreadable: the fields whose value did not fit their type, with commas between; null when there are none
with
told as (
  select
    deal_id,
    observed_at,
    arg_max(business_date, seq) as business_date,
    {told}
  from raw.deal_extra
  where
    business_date <= cast(getvariable('as_of') as date)
    and recorded_at <= cast(getvariable('known_at') as timestamp)
  group by deal_id, observed_at
),

carried as (
  select
    deal_id,
    observed_at,
    business_date,
    {carried}
  from told
  window in_time as (partition by deal_id order by observed_at rows unbounded preceding)
),

changed as (
  select *
  from carried
  qualify
    {row} is distinct from lag({row}) over (partition by deal_id order by observed_at)
)

select
  deal_id,
  row_number() over in_time as version,
  observed_at as valid_from,
  lead(observed_at) over in_time as valid_to,
  business_date,
  {shown},
  nullif(concat_ws(',', {unreadable}), '') as unreadable
from changed
where deal_id in (select deal_id from core.deal_history)
window in_time as (partition by deal_id order by observed_at)
