-- The metrics of a fleet, in the form of those of a data folder.

-- source_healthy: 1 for a source whose last success is recent, else 0.
select value ->> 'source' as source, value ->> 'healthy' as value
from json_each($sources);

-- source_error: 1 for a source that cannot be read or run.
select one.value ->> 'source' as source, one.value ->> '$.error.code' as code, 1 as value
from json_each($sources) as one
where one.value ->> '$.error.code' is not null;

-- last_success_age_seconds: Since the last sync that ended well.
select
  value ->> 'source' as source,
  ($now_ms - unixepoch(value ->> '$.last_success.ended_at', 'subsec') * 1000) / 1000.0 as value
from json_each($sources);

-- release_age_seconds: Since what the current release tells was recorded.
select
  value ->> 'source' as source,
  ($now_ms - unixepoch(value ->> '$.release.known_at', 'subsec') * 1000) / 1000.0 as value
from json_each($sources);

-- release_deals: Present deals of the current release.
select value ->> 'source' as source, value ->> '$.release.deals' as value
from json_each($sources);

-- source_running: 1 for a source with a run under way, else 0.
select value ->> 'source' as source, value ->> 'running' is not null as value
from json_each($sources);

-- alarm: 1 for each alarm that is raised.
select
  one.value ->> 'source' as source,
  raised.value ->> 'name' as name,
  substr(raised.value ->> 'state', 1, instr(raised.value ->> 'state' || ':', ':') - 1) as state,
  1 as value
from json_each($sources) as one, json_each(one.value, '$.alarms') as raised;
