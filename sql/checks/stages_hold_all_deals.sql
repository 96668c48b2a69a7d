-- mart.stage_duration holds every spell of every deal ever seen, except those that mart.data_quality counts as left out: each
-- ended in one exit or is ongoing.
-- severity: error
with
stages as (
  select
    coalesce(sum(spells) filter (where exit = 'any'), 0) as spells,
    coalesce(sum(completed + at_risk) filter (where exit = 'any'), 0) as accounted,
    coalesce(sum(completed) filter (where exit = 'any'), 0) as completed,
    coalesce(sum(completed) filter (where exit <> 'any'), 0) as by_exit
  from mart.stage_duration
),

left_out as (
  select coalesce(sum(deals), 0) as spells
  from mart.data_quality
  where metric = 'censored_stage_began_unseen'
),

ever as (
  select
    (select count(*) from core.status_change) + (select count(distinct deal_id) from core.deal_history) as spells
)

select
  'mart.stage_duration' as place,
  stages.spells,
  left_out.spells as left_out,
  ever.spells as expected_spells,
  stages.accounted,
  stages.completed,
  stages.by_exit
from stages
cross join left_out
cross join ever
where
  stages.spells + left_out.spells <> ever.spells
  or stages.spells <> stages.accounted
  or stages.by_exit > stages.completed
