-- What was funded in a month is the same in mart.funded_rollforward and mart.origination_monthly, in amount; and no
-- fewer deals were funded than mart.pull_through counts.
-- severity: error
with
originations as (
  select
    month,
    sum(amount) as amount,
    sum(deals) as deals
  from mart.origination_monthly
  group by month
)

select
  coalesce(rollforward.month, originations.month) as month,
  rollforward.originated,
  originations.amount as origination_amount,
  pull_through.funded,
  originations.deals as origination_deals
from mart.funded_rollforward as rollforward
full join originations on originations.month = rollforward.month
left join mart.pull_through as pull_through on pull_through.month = coalesce(rollforward.month, originations.month)
where
  coalesce(rollforward.originated, 0) <> coalesce(originations.amount, 0)
  or coalesce(pull_through.funded, 0) > coalesce(originations.deals, 0)
