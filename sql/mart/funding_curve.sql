-- The funding curve of applications: the share of the deals created in a month that was funded by the end of that month and
-- of each later one. A cohort whose month began before the first walk is left out, as deals gone by then were never seen:
-- `censored_funding_curve` of mart.data_quality counts its deals. Vanished deals count. What becomes of funded loans is in
-- mart.vintage.
-- grain: cohort_month, age_months
-- adds_up: deals
-- check: unique(cohort_month, age_months)
-- check: not_null(cohort_month, age_months, deals, funded_pct)
-- check: between(funded_pct, 0, 100)
--
-- cohort_month: month of created_on, YYYY-MM
-- age_months: calendar months after the cohort's month, 0 being that month itself; months that have ended by as_of only
-- deals: deals of the cohort; the same at every age
-- funded_pct: share of these seen funded, or past that, by the last day of that month, in percent, even if they no longer are
with
cohorts as (
  select
    life.created_month as cohort_month,
    date_trunc('month', any_value(life.created_on)) as start,
    count(*) as deals
  from work.deal_life as life
  where date_trunc('month', life.created_on) >= life.first_walk_on
  group by life.created_month
),

fundings as (
  select
    created_month as cohort_month,
    greatest(date_diff('month', created_on, reached_funded_on), 0) as age_months,
    count(*) as deals
  from work.deal_life
  where reached_funded_on is not null and date_trunc('month', created_on) >= first_walk_on
  group by all
),

ages as (
  select
    cohort_month,
    deals,
    unnest(
      range(date_diff('month', start, cast(getvariable('as_of') as date) + 1))
    ) as age_months
  from cohorts
)

select
  ages.cohort_month,
  ages.age_months,
  ages.deals,
  round(coalesce(sum(fundings.deals), 0) / ages.deals * 100, 6) as funded_pct
from ages
left join fundings on fundings.cohort_month = ages.cohort_month and fundings.age_months <= ages.age_months
group by
  ages.cohort_month,
  ages.age_months,
  ages.deals
