-- Deals whose state at the moment of an earlier release, {known_at} and {as_of}, is another in a later one.
with
said as (
  select
    deal_id,
    arg_max(change, version) as change,
    arg_max(status, version) as status,
    arg_max(loan_amount, version) as loan_amount
  from release.core.deal_history
  where valid_from <= timestamp '{known_at}' and business_date <= date '{as_of}'
  group by deal_id
  having change <> 'vanished'
)

select deal_id
from temp.known
full join said using (deal_id)
where (known.status, known.loan_amount) is distinct from (said.status, said.loan_amount)
  and {is_later}
