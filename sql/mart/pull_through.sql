-- Pull-through by month, as finance knows it twice: the period's fundings by the period's new deals, and what became of
-- the deals created in the month. Vanished deals count in both. Months before the first walk are left out; the first
-- one counts fundings since the first walk, and of the deals created before it only those still there:
-- `censored_created_before_first_walk` of mart.data_quality.
-- grain: month
-- adds_up: entered, funded, cohort_funded
-- check: unique(month)
-- check: not_null(month, entered, funded, cohort_funded)
-- check: between(cohort_pull_through_pct, 0, 100)
--
-- month: YYYY-MM; every month from the first walk to as_of
-- entered: deals created in the month (created_on)
-- funded: deals originated in the month, whenever created (mart.origination_monthly)
-- pull_through_pct: funded by entered, in percent; may exceed 100; null when nothing entered
-- cohort_funded: of the deals created in the month, those funded by as_of, also when they no longer are
-- cohort_pull_through_pct: cohort_funded by entered, in percent; rises while the cohort ages; null when nothing entered
with
cohorts as (
  select
    created_month as month,
    count(*) as entered,
    count(first_funded_on) as cohort_funded
  from work.deal_life
  where created_month >= strftime(first_walk_on, '%Y-%m')
  group by created_month
),

fundings as (
  select
    month,
    count(distinct deal_id) as funded
  from work.funded_movement
  where term = 'originated'
  group by month
),

-- A deal created while the last walk crossed the cut-off, or dated ahead by its source, belongs to a later month.
months as (
  select month
  from work.month
  union
  select month
  from cohorts
  where month > (select max(month) from work.month)
)

select
  months.month,
  coalesce(cohorts.entered, 0) as entered,
  coalesce(fundings.funded, 0) as funded,
  round(coalesce(fundings.funded, 0) / cohorts.entered * 100, 6) as pull_through_pct,
  coalesce(cohorts.cohort_funded, 0) as cohort_funded,
  round(cohorts.cohort_funded / cohorts.entered * 100, 6) as cohort_pull_through_pct
from months
left join cohorts on cohorts.month = months.month
left join fundings on fundings.month = months.month
