-- The 25 largest funded deals.
-- grain: rank
-- check: unique(rank)
-- check: unique(deal_id)
-- check: not_null(rank, deal_id, loan_amount)
-- check: references(deal_id, core.deal.deal_id)
--
-- rank: from 1, by loan_amount, largest first, then by deal_id
-- deal_id: the service's id
-- property_address: free text, as the service has it
-- loan_program: null when unknown
-- loan_amount: USD
-- share_pct: share of the whole funded amount, in percent; null when that is zero
select
  row_number() over (order by deal.loan_amount desc, deal.deal_id) as rank,
  deal.deal_id,
  deal.property_address,
  deal.loan_program,
  deal.loan_amount,
  round(deal.loan_amount / nullif(summary.funded_amount, 0) * 100, 6) as share_pct
from core.deal as deal
cross join mart.portfolio_summary as summary
where deal.status_class = 'funded'
qualify rank <= 25
