-- The metrics of a data folder over its state database: a name, what it is, and its values, each behind those of its labels.

-- last_success_age_seconds: Since the last sync that ended well.
select max(($now_ms - unixepoch(ended_at, 'subsec') * 1000) / 1000.0) as value
from (select ended_at from run where command = 'sync' and exit_code = 0 order by rowid desc limit 1);

-- last_walk: Of the last sync that ended well: pages, records, quarantined.
select part.key as what, part.value
from
  (select summary from run where command = 'sync' and exit_code = 0 order by rowid desc limit 1) as last,
  json_each(last.summary, '$.walk') as part
where part.key in ('pages', 'records', 'quarantined');

-- last_sync_seconds: How long it took, and how long it waited for limits.
select iif(part.key = 'duration_ms', 'duration', 'waited') as what, part.value / 1000.0 as value
from
  (select summary from run where command = 'sync' and exit_code = 0 order by rowid desc limit 1) as last,
  json_each(last.summary) as part
where part.key in ('duration_ms', 'waited_ms');

-- last_changes: Deals of the last sync, by how they had changed.
select change.key as kind, change.value
from
  (select summary from run where command = 'sync' and exit_code = 0 order by rowid desc limit 1) as last,
  json_each(last.summary, '$.changes') as change;

-- sync_total: Over all syncs that ended well: pages, records, changes, quarantined.
with
sums as materialized (
  select
    count(*) as syncs,
    coalesce(sum(summary ->> '$.walk.pages'), 0) as pages,
    coalesce(sum(summary ->> '$.walk.records'), 0) as records,
    coalesce(sum(summary ->> '$.walk.quarantined'), 0) as quarantined,
    coalesce(sum((
      select sum(change.value)
      from json_each(summary, '$.changes') as change
      where change.key in ('created', 'updated', 'missing', 'vanished', 'restored')
    )), 0) as changes
  from run
  where command = 'sync' and exit_code = 0
)

select 'syncs' as what, syncs as value from sums
union all select 'pages', pages from sums
union all select 'records', records from sums
union all select 'quarantined', quarantined from sums
union all select 'changes', changes from sums;

-- release_checks: Checks of the current release.
select part.key as result, part.value
from json_each($release, '$.checks') as part
where part.key in ('passed', 'warned');

-- release_age_seconds: Since what the current release tells was recorded.
select ($now_ms - unixepoch($release ->> 'known_at', 'subsec') * 1000) / 1000.0 as value;

-- release_rows: Rows of the current release.
select one.value ->> 'name' as "table", one.value ->> 'rows' as value
from json_each($release, '$.tables') as one;

-- slot_lag_seconds: Between slot and start of the last run of each job.
select job, (julianday(started_at) - julianday(slot)) * 86400.0 as value
from (
  select *, row_number() over (partition by job order by started_at desc) as place
  from job_run
  where started_at is not null and slot is not null
)
where place = 1;

-- source_answers: Answers of the source by HTTP status, over all runs.
select status, answers as value
from source_answer
order by status;

-- job_runs: Runs the state database holds, by job and state.
select job, state, count(*) as value
from job_run
group by job, state;

-- last_export_bytes: Bytes of the batches of the last run of each job.
select
  job,
  (
    select coalesce(sum(batch.value ->> '$.bytes'), 0)
    from json_each(last.summary, '$.steps') as step, json_each(step.value, '$.result') as batch
    where step.value ->> '$.do' = 'export'
  ) as value
from (
  select *, row_number() over (partition by job order by started_at desc) as place
  from job_run
  where started_at is not null and slot is not null
) as last
where place = 1;

-- webhook_missed_changes: Changes the last walk found that no webhook had told of.
select missed as value
from (select missed from webhook_coverage order by rowid desc limit 1)
where $takes_webhooks;

-- queued_runs: Runs that wait for their turn.
select count(*) as value from job_run where state = 'queued';

-- alarm: 1 for each alarm that is raised.
select
  one.value ->> 'name' as name,
  -- Without the names of limits, which readers of metrics may not be allowed to see.
  substr(one.value ->> 'state', 1, instr(one.value ->> 'state' || ':', ':') - 1) as state,
  1 as value
from json_each($alarms) as one;

-- state_bytes: Size of state.sqlite.
select $state_bytes as value;
