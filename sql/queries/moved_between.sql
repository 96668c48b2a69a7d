-- What differs between deals_before and deals_after, by deal.
select
  deal_id,
  b.status as status_before,
  a.status as status_after,
  b.loan_amount as amount_before,
  a.loan_amount as amount_after,
  coalesce(a.open, 0) - coalesce(b.open, 0) as open,
  coalesce(a.funded, 0) - coalesce(b.funded, 0) as funded,
  coalesce(a.pipeline, 0) - coalesce(b.pipeline, 0) as pipeline,
  deal_id in (from temp.corrected) as is_corrected
from temp.deals_before as b
full join temp.deals_after as a using (deal_id)
