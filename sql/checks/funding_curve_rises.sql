-- In mart.funding_curve no cohort loses deals or funded deals with age, and every age up to the last has its row.
-- severity: error
with
steps as (
  select
    cohort_month,
    age_months,
    deals,
    funded_pct,
    lag(deals) over ageing as deals_before,
    lag(funded_pct) over ageing as funded_before,
    row_number() over ageing - 1 as expected_age
  from mart.funding_curve
  window ageing as (partition by cohort_month order by age_months)
)

select
  cohort_month || ' age ' || age_months as place,
  expected_age,
  deals,
  deals_before,
  funded_pct,
  funded_before
from steps
where
  age_months <> expected_age
  or deals <> deals_before
  or funded_pct < funded_before
