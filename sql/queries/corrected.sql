-- Of the deals that differ between deals_before and deals_after, those whose state at the moment of the earlier release, {known_at}
-- and {as_of}, is another in the later one.
with
moved as (
  select deal_id
  from temp.deals_before as b
  full join temp.deals_after as a using (deal_id)
  where
    b.status is distinct from a.status
    or b.status_class is distinct from a.status_class
    or b.loan_amount is distinct from a.loan_amount
),

known as (
  select deal_id, status, loan_amount
  from before.core.deal
  semi join moved using (deal_id)
),

said as (
  select
    deal_id,
    arg_max(change, version) as change,
    arg_max(status, version) as status,
    arg_max(loan_amount, version) as loan_amount
  from after.core.deal_history
  semi join moved using (deal_id)
  where valid_from <= timestamp '{known_at}' and business_date <= date '{as_of}'
  group by deal_id
  having change <> 'vanished'
)

select deal_id
from known
full join said using (deal_id)
where (known.status, known.loan_amount) is distinct from (said.status, said.loan_amount)
  and {is_later}
