-- What was funded in a month is the same in mart.funded_rollforward, mart.origination_monthly and mart.pull_through, in number and
-- amount, and the programs of mart.pull_through add up to all.
-- severity: error
with
originations as (
  select
    month,
    sum(amount) as amount,
    sum(deals) as deals
  from mart.origination_monthly
  group by month
),

pull_through as (
  select
    month,
    coalesce(sum(entered) filter (where loan_program = '(all)'), 0) as entered,
    coalesce(sum(entered) filter (where loan_program <> '(all)'), 0) as program_entered,
    coalesce(sum(funded) filter (where loan_program = '(all)'), 0) as funded,
    coalesce(sum(funded) filter (where loan_program <> '(all)'), 0) as program_funded,
    coalesce(sum(funded_amount) filter (where loan_program = '(all)'), 0) as funded_amount,
    coalesce(sum(funded_amount) filter (where loan_program <> '(all)'), 0) as program_amount,
    coalesce(sum(fallout) filter (where loan_program = '(all)'), 0) as fallout,
    coalesce(sum(fallout) filter (where loan_program <> '(all)'), 0) as program_fallout
  from mart.pull_through
  group by month
)

select
  coalesce(rollforward.month, originations.month) as month,
  rollforward.originated,
  originations.amount as origination_amount,
  originations.deals as origination_deals,
  pull_through.funded,
  pull_through.funded_amount,
  pull_through.program_funded,
  pull_through.program_amount,
  pull_through.entered,
  pull_through.program_entered,
  pull_through.fallout,
  pull_through.program_fallout
from mart.funded_rollforward as rollforward
full join originations on originations.month = rollforward.month
left join pull_through on pull_through.month = coalesce(rollforward.month, originations.month)
where
  coalesce(rollforward.originated, 0) <> coalesce(originations.amount, 0)
  or pull_through.funded <> coalesce(originations.deals, 0)
  or pull_through.funded_amount <> coalesce(originations.amount, 0)
  or pull_through.funded <> pull_through.program_funded
  or pull_through.funded_amount <> pull_through.program_amount
  or pull_through.entered <> pull_through.program_entered
  or pull_through.fallout <> pull_through.program_fallout
