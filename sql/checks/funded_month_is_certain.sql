-- The month in which a deal was funded is certain; where it is not, seed.funded_on can say.
-- severity: warn
select
  deal_id,
  funded_after,
  funded_on,
  loan_amount
from core.deal
where
  not funded_on_is_exact
  and date_trunc('month', funded_after) <> date_trunc('month', funded_on)
