-- The funded loans: what the receivable accounts stand for. Adds up to funded_amount of mart.portfolio_summary and to the
-- last closing of mart.funded_rollforward.
-- grain: deal_id
-- per: deal_id
-- adds_up: loan_amount
-- check: unique(deal_id)
-- check: not_null(deal_id, loan_amount, funded_before, funded_on_is_exact)
--
-- deal_id: the service's id
-- property_address: free text, as the service has it; null if it has none
-- loan_program: null when unknown
-- loan_amount: USD
-- funded_on: business date on which the current funded spell began, or the date in seed.funded_on if that belongs to
--   it; null if the deal was funded when first seen and no date is given
-- funded_before: business date by which it was funded: funded_on, or the date on which it was first seen
-- funded_on_is_exact: at most one day of uncertainty, or the date is from seed.funded_on; false if funded_on is not
--   known
select
  deal_id,
  property_address,
  loan_program,
  loan_amount,
  funded_on,
  funded_before,
  funded_on_is_exact
from core.deal
where status_class = 'funded'
