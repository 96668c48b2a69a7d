-- How long deals stay in each status, in calendar days from one business date to another, weekends included. Only spells
-- whose begin and end were both observed are measured. Those that began before the first walk and those of deals that
-- vanished are left out: `censored_stage_began_unseen` and `censored_stage_vanished` of mart.data_quality. Going missing,
-- or vanishing and coming back, neither ends a spell nor stops its days.
-- grain: status
-- check: unique(status)
-- check: not_null(status, completed, still_open)
--
-- status: every status ever seen
-- completed: spells with both ends observed; a deal that comes back to a status has several
-- median_days: mean of the two middle ones; null when none is completed
-- p90_days: the smallest number of days that nine in ten of them do not exceed; null when none is completed
-- still_open: present deals now in it, missing ones included
with
completed as (
  select
    from_status as status,
    days_in_previous as days,
    row_number() over (partition by from_status order by days_in_previous) as place,
    count(*) over (partition by from_status) as spells
  from core.status_change
  where days_in_previous is not null
),

-- Whole numbers all along: no sum or quantile of DOUBLE.
durations as (
  select
    status,
    any_value(spells) as completed,
    sum(days) filter (where place in ((spells + 1) // 2, (spells + 2) // 2)) as middle_days,
    count(*) filter (where place in ((spells + 1) // 2, (spells + 2) // 2)) as middle_spells,
    max(days) filter (where place = (9 * spells + 9) // 10) as p90_days
  from completed
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
  coalesce(durations.completed, 0) as completed,
  cast(durations.middle_days / durations.middle_spells as double) as median_days,
  durations.p90_days,
  coalesce(open.deals, 0) as still_open
from statuses
left join durations on durations.status = statuses.status
left join open on open.status = statuses.status
