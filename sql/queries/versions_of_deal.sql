-- Every version of the deal $1 up to the business day $2, oldest first, with its value of {field}.
-- A replayed record is on the tape of the walk that could not read it.
select
  strftime(version.observed_at, '%Y-%m-%dT%H:%M:%S.%fZ') as observed_at,
  strftime(recorded_at, '%Y-%m-%dT%H:%M:%S.%fZ') as recorded_at,
  business_date,
  kind,
  version.source,
  coalesce(replayed.source, version.source) as told_by,
  coalesce(version.walk_id, replayed.walk_id) as walk_id,
  cast({field} as varchar) as value
from history.raw.deal_version as version
left join (
  select
    observed_at,
    min(source) as source,
    any_value(walk_id) as walk_id
  from history.raw.quarantine
  where stream = 'deal' and record_id = $1
  group by observed_at
) as replayed on version.source = 'replay' and replayed.observed_at = version.observed_at
where deal_id = $1 and business_date <= cast($2 as date)
order by version.observed_at, seq
