-- What differs between deals_before and deals_after, by deal.
select
  deal_id,
  b.status as status_before,
  a.status as status_after,
  b.loan_amount as amount_before,
  a.loan_amount as amount_after,
  coalesce(a.open, 0) - coalesce(b.open, 0) as open,
  coalesce(a.funded, 0) - coalesce(b.funded, 0) as funded,
  coalesce(a.pipeline, 0) - coalesce(b.pipeline, 0) as pipeline
from temp.deals_before as b
full join temp.deals_after as a using (deal_id)
where
  b.status is distinct from a.status
  or b.status_class is distinct from a.status_class
  or b.loan_amount is distinct from a.loan_amount
