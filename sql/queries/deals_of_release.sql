-- The deals of a release that a condition selects, with their amounts in each part as mart.movement counts them.
select
  deal_id,
  status,
  status_class,
  loan_amount,
  if(not starts_with(status_class, 'ended'), loan_amount, 0) as open,
  if(status_class = 'funded', loan_amount, 0) as funded,
  if(status_class = 'pipeline', loan_amount, 0) as pipeline
from release.core.deal as deal
where {condition}
