-- The bands that a deal lies in: what mart.portfolio_breakdown counts and pages filter by. Built for others and not published.
-- grain: deal_id
-- per: deal_id
--
-- deal_id: the service's id
-- size_band: by loan_amount; the lower edge of a band belongs to it
-- ltv_band: by loan-to-value in percent; the upper edge of a band belongs to it; `unknown` where ltv is null
select
  deal_id,
  case
    when loan_amount < 250000 then '<250k'
    when loan_amount < 500000 then '250–500k'
    when loan_amount < 1000000 then '500k–1m'
    when loan_amount < 2500000 then '1–2.5m'
    when loan_amount < 5000000 then '2.5–5m'
    when loan_amount < 10000000 then '5–10m'
    else '≥10m'
  end as size_band,
  -- DECIMAL keeps 65 % exactly 65 %.
  case
    when ltv is null then 'unknown'
    when scaled_amount <= wide_value * 50 then '≤50'
    when scaled_amount <= wide_value * 60 then '50–60'
    when scaled_amount <= wide_value * 65 then '60–65'
    when scaled_amount <= wide_value * 70 then '65–70'
    when scaled_amount <= wide_value * 75 then '70–75'
    when scaled_amount <= wide_value * 80 then '75–80'
    when scaled_amount <= wide_value * 85 then '80–85'
    when scaled_amount <= wide_value * 90 then '85–90'
    else '>90'
  end as ltv_band
from (
  select
    *,
    cast(loan_amount as decimal(28, 2)) * 100 as scaled_amount,
    cast(property_value as decimal(28, 2)) as wide_value
  from core.deal
)
