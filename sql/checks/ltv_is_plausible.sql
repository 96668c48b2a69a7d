-- Loan-to-value is at most 1.5. Above that it can be land or construction: it is kept, but in no average. Above 10 it is taken
-- for a typo, such as a value in thousands, and is unknown.
-- severity: warn
-- next: Correct the value of the property in the source.
select
  deal_id,
  loan_amount,
  property_value,
  case when ltv is null then 'above 10: taken for unknown' else 'above 1.5: kept, in no average' end as ltv
from core.deal
where property_value > 0 and cast(loan_amount as decimal(28, 2)) * 10 > cast(property_value as decimal(28, 2)) * 15
order by deal_id
