-- What differs between deals_before and deals_after, by deal; amounts in each part as mart.movement counts them.
with
differing as (
  select
    deal_id,
    b.status as status_before,
    a.status as status_after,
    b.status_class as class_before,
    a.status_class as class_after,
    b.loan_amount as amount_before,
    a.loan_amount as amount_after
  from temp.deals_before as b
  full join temp.deals_after as a using (deal_id)
  where
    b.status is distinct from a.status
    or b.status_class is distinct from a.status_class
    or b.loan_amount is distinct from a.loan_amount
)

select
  *,
  if(not starts_with(class_after, 'ended'), amount_after, 0) - if(not starts_with(class_before, 'ended'), amount_before, 0) as open,
  if(class_after = 'funded', amount_after, 0) - if(class_before = 'funded', amount_before, 0) as funded,
  if(class_after = 'pipeline', amount_after, 0) - if(class_before = 'pipeline', amount_before, 0) as pipeline
from differing
