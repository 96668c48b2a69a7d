-- How long deals stay in each status, in calendar days from one business date to another, weekends included. Only spells
-- whose begin and end were both observed are measured. Those that began before the first walk and those of deals that
-- vanished are left out: `censored_stage_began_unseen` and `censored_stage_vanished` of mart.data_quality. Going missing,
-- or vanishing and coming back, neither ends a spell nor stops its days.
-- grain: status
-- adds_up: completed, still_open
-- check: unique(status)
-- check: not_null(status, completed, still_open)
--
-- status: every status ever seen
-- completed: spells with both ends observed; a deal that comes back to a status has several
-- median_days: mean of the two middle ones; null when none is completed
-- p90_days: the smallest number of days that nine in ten of them do not exceed; null when none is completed
-- still_open: present deals now in it, missing ones included
with
-- Spells of one status that lasted as many days are one row: what is ranked is short.
counted as (
  select
    from_status as status,
    days_in_previous as days,
    count(*) as spells
  from core.status_change
  where days_in_previous is not null
  group by
    status,
    days
),

ranked as (
  select
    status,
    days,
    sum(spells) over (partition by status order by days) as last_place,
    last_place - spells as places_before,
    sum(spells) over (partition by status) as completed
  from counted
),

-- Whole numbers all along: no sum or quantile of DOUBLE.
durations as (
  select
    status,
    any_value(completed) as completed,
    max(days) filter (where places_before < (completed + 1) // 2) as lower_middle,
    max(days) filter (where places_before < (completed + 2) // 2) as upper_middle,
    max(days) filter (where places_before < (9 * completed + 9) // 10) as p90_days
  from ranked
  group by status
),

statuses as (
  select distinct status
  from core.deal_history
),

open as (
  select
    status,
    count(*) as deals
  from core.deal
  group by status
)

select
  statuses.status,
  cast(coalesce(durations.completed, 0) as bigint) as completed,
  cast((durations.lower_middle + durations.upper_middle) / 2 as double) as median_days,
  durations.p90_days,
  coalesce(open.deals, 0) as still_open
from statuses
left join durations on durations.status = statuses.status
left join open on open.status = statuses.status
