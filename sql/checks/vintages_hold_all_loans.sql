-- mart.vintage has every loan of a cohort in one outcome at every age, and its cohorts are the months of
-- mart.origination_monthly, in number and amount.
-- severity: error
with
ages as (
  select
    cohort_month,
    months_on_book,
    sum(deals) as deals,
    max(cohort_deals) as cohort_deals,
    max(cohort_amount) as cohort_amount,
    row_number() over (partition by cohort_month order by months_on_book) - 1 as expected_age
  from mart.vintage
  group by
    cohort_month,
    months_on_book
),

originations as (
  select
    month,
    sum(deals) as deals,
    sum(amount) as amount
  from mart.origination_monthly
  group by month
)

select
  ages.cohort_month || ' month on book ' || ages.months_on_book as place,
  ages.expected_age,
  ages.deals,
  ages.cohort_deals,
  originations.deals as originated_deals,
  ages.cohort_amount,
  originations.amount as originated_amount
from ages
left join originations on originations.month = ages.cohort_month
where
  ages.months_on_book <> ages.expected_age
  or ages.deals <> ages.cohort_deals
  or ages.cohort_deals is distinct from originations.deals
  or ages.cohort_amount is distinct from originations.amount
