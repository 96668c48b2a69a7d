-- Of {deals} those whose state at the moment of the earlier release, {known_at} and {as_of}, is another in the
-- later one.
with
known as (
  select deal_id, status, loan_amount
  from before.core.deal
  semi join {deals} using (deal_id)
),

said as (
  select
    deal_id,
    arg_max(change, version) as change,
    arg_max(status, version) as status,
    arg_max(loan_amount, version) as loan_amount
  from release.core.deal_history
  semi join {deals} using (deal_id)
  where valid_from <= timestamp '{known_at}' and business_date <= date '{as_of}'
  group by deal_id
  having change <> 'vanished'
)

select deal_id
from known
full join said using (deal_id)
where (known.status, known.loan_amount) is distinct from (said.status, said.loan_amount)
  and {is_later}
