-- Deals whose state at the moment of an earlier release, $1 and $2, is another in a later one.
with
said as (
  select
    deal_id,
    arg_max(change, version) as change,
    arg_max(status, version) as status,
    arg_max(loan_amount, version) as loan_amount
  from release.core.deal_history
  where valid_from <= cast($1 as timestamp) and business_date <= cast($2 as date)
  group by deal_id
  having change <> 'vanished'
)

select deal_id
from memory.main.known
full join said using (deal_id)
where (known.status, known.loan_amount) is distinct from (said.status, said.loan_amount)
