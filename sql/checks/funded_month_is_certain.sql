-- The month in which each deal was funded is known. If the last day on which a deal was not funded and the first on which it was
-- lie in different months, seed.funded_on can give the date. Deals funded when observation began are left out.
-- severity: warn
-- next: Name true dates in seeds/funded_on.csv of LOANTAPE_SQL_DIR: docs/analyst-guide.md#read-it-right.
select
  deal_id,
  funded_after,
  funded_before as funded_by,
  loan_amount
from core.deal
where
  not funded_on_is_exact
  and date_trunc('month', funded_after) <> date_trunc('month', funded_before)
