-- Funded deals that deserve a second look, and why: an example of a table of your own.
-- grain: deal_id
-- check: unique(deal_id)
-- check: accepted(reason, high ltv, large)
--
-- deal_id: the service's id
-- loan_amount: USD
-- reason: high ltv where it is above 75 %, else large
select
  deal_id,
  loan_amount,
  case when loan_amount * 100 > property_value * 75 then 'high ltv' else 'large' end as reason
from core.deal
where status_class = 'funded' and (loan_amount * 100 > property_value * 75 or loan_amount > 10000000)
