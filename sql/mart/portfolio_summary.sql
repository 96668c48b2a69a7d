-- The portfolio at as_of in one row. Missing deals count, vanished ones do not.
-- grain: as_of
-- check: unique(as_of)
-- check: not_null(as_of, deals, amount, pipeline_deals, pipeline_amount, funded_deals, funded_amount)
--
-- as_of: business date the numbers stand for
-- deals: deals of every status
-- amount: sum of loan_amount, USD
-- pipeline_deals: deals whose status is of class pipeline
-- pipeline_amount: their sum, USD
-- funded_deals: deals whose status is of class funded
-- funded_amount: their sum, USD
-- wa_ltv: loan-to-value weighted by amount, as a ratio, over deals with an ltv
-- pooled_ltv: sum of amounts by sum of values, as a ratio, over deals with an ltv
-- ltv_coverage_pct: share of the amount whose deals have an ltv, in percent
-- average_amount: USD, half up; null without deals
-- median_amount: USD, the mean of the two middle ones half up; null without deals
-- largest_amount: USD; null without deals
with
totals as (
  select
    count(*) as deals,
    coalesce(sum(loan_amount), 0) as amount,
    count(*) filter (where status_class = 'pipeline') as pipeline_deals,
    coalesce(sum(loan_amount) filter (where status_class = 'pipeline'), 0) as pipeline_amount,
    count(*) filter (where status_class = 'funded') as funded_deals,
    coalesce(sum(loan_amount) filter (where status_class = 'funded'), 0) as funded_amount,
    sum(cast(loan_amount as decimal(28, 2)) * ltv) as weighted_ltv,
    sum(loan_amount) filter (where ltv is not null) as valued_amount,
    sum(property_value) filter (where ltv is not null) as value,
    max(loan_amount) as largest_amount
  from core.deal
),

ranked as (
  select
    loan_amount,
    row_number() over (order by loan_amount) as place,
    count(*) over () as deals
  from core.deal
),

middle as (
  select (min(loan_amount) + cast(max(loan_amount) as decimal(28, 2))) * 0.5 as median_amount
  from ranked
  where place in ((deals + 1) // 2, (deals + 2) // 2)
)

select
  cast(getvariable('as_of') as date) as as_of,
  totals.deals,
  cast(totals.amount as decimal(38, 2)) as amount,
  totals.pipeline_deals,
  cast(totals.pipeline_amount as decimal(38, 2)) as pipeline_amount,
  totals.funded_deals,
  cast(totals.funded_amount as decimal(38, 2)) as funded_amount,
  round(totals.weighted_ltv / nullif(totals.valued_amount, 0), 9) as wa_ltv,
  round(totals.valued_amount / nullif(totals.value, 0), 9) as pooled_ltv,
  round(coalesce(totals.valued_amount, 0) / nullif(totals.amount, 0) * 100, 6) as ltv_coverage_pct,
  cast(
    cast((2 * cast(totals.amount * 100 as hugeint) + totals.deals) // (2 * nullif(totals.deals, 0)) as decimal(28, 0))
    * 0.01 as decimal(18, 2)
  ) as average_amount,
  cast(middle.median_amount as decimal(18, 2)) as median_amount,
  totals.largest_amount
from totals
cross join middle
