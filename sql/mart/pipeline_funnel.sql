-- How far the deals of each month got. A deal reached a status if it was ever seen in it or in a later one, so statuses that were
-- skipped or left again count; vanished deals count at their last amount. A deal seen only as withdrawn, declined or the like, or
-- in a status that seed.status does not list, reached nothing here; it still counts in the cohort that conversion_pct divides by,
-- and in `no_funnel_stage` of mart.data_quality. Of cohorts from before the first walk, only deals that were still there are
-- known (`censored_created_before_first_walk` there).
-- grain: cohort_month, status
-- check: unique(cohort_month, status)
-- check: not_null(cohort_month, status, reached_deals, reached_amount, conversion_pct)
-- check: between(conversion_pct, 0, 100)
--
-- cohort_month: month of created_on, YYYY-MM
-- status: every status of class pipeline or funded ever seen, in every cohort
-- reached_deals: deals of the cohort that reached it
-- reached_amount: sum of their last amounts, USD
-- conversion_pct: reached_deals / all deals of the cohort, in percent
with
stages as (
  select distinct
    status.status,
    status.sort_order
  from core.deal_history as history
  inner join seed.status on status.status = history.status
  where status.class in ('pipeline', 'funded')
),

cohorts as (
  select
    created_month,
    reached_order,
    count(*) as deals,
    sum(loan_amount) as amount
  from work.deal_life
  group by
    created_month,
    reached_order
)

select
  cohorts.created_month as cohort_month,
  stages.status,
  cast(coalesce(sum(cohorts.deals) filter (where cohorts.reached_order >= stages.sort_order), 0) as bigint)
    as reached_deals,
  cast(
    coalesce(sum(cohorts.amount) filter (where cohorts.reached_order >= stages.sort_order), 0) as decimal(38, 2)
  ) as reached_amount,
  round(reached_deals / sum(cohorts.deals) * 100, 6) as conversion_pct
from cohorts
cross join stages
group by
  cohorts.created_month,
  stages.status,
  stages.sort_order
