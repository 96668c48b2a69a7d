-- mart.stage_duration holds every present deal as still open, and every change of status whose spell was observed from
-- its begin as completed.
-- severity: error
with
stages as (
  select
    coalesce(sum(still_open), 0) as still_open,
    coalesce(sum(completed), 0) as completed
  from mart.stage_duration
)

select
  'mart.stage_duration' as place,
  stages.still_open,
  summary.deals as expected_open,
  stages.completed,
  changes.completed as expected_completed
from stages
cross join mart.portfolio_summary as summary
cross join (select count(days_in_previous) as completed from core.status_change) as changes
where
  stages.still_open <> summary.deals
  or stages.completed <> changes.completed
