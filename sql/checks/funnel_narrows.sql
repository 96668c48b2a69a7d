-- In mart.pipeline_funnel no status of a cohort was reached by more deals, or a larger amount, than the one before it.
-- severity: error
with
steps as (
  select
    funnel.cohort_month,
    funnel.status,
    funnel.reached_deals,
    funnel.reached_amount,
    lag(funnel.reached_deals) over narrowing as deals_before,
    lag(funnel.reached_amount) over narrowing as amount_before
  from mart.pipeline_funnel as funnel
  inner join seed.status on status.status = funnel.status
  window narrowing as (partition by funnel.cohort_month order by status.sort_order, funnel.status)
)

select
  cohort_month || ' ' || status as place,
  reached_deals,
  deals_before,
  reached_amount,
  amount_before
from steps
where
  reached_deals > deals_before
  or reached_amount > amount_before
