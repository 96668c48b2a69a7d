-- The portfolio at as_of in one row. Missing deals count, vanished ones do not. Every deal is open or ended: repaid, sold,
-- withdrawn and declined deals stay in deals and amount, which tie to the source.
-- grain: as_of
-- adds_up: deals, amount, open_deals, open_amount, ended_deals, ended_amount, pipeline_deals, pipeline_amount
-- adds_up: funded_deals, funded_amount
-- check: unique(as_of)
-- check: not_null(as_of, deals, amount, open_deals, open_amount, ended_deals, ended_amount)
-- check: not_null(pipeline_deals, pipeline_amount, funded_deals, funded_amount)
--
-- as_of: business date the numbers are for
-- deals: deals of every status
-- amount: sum of loan_amount, USD
-- open_deals: deals whose status is of class pipeline, funded or unclassified
-- open_amount: their sum, USD
-- open_wa_ltv: their loan-to-value weighted by amount, Σ(amount × ltv) / Σ amount, as a ratio, over those with an ltv of at
--   most 1.5; null when no amount has one
-- open_pooled_ltv: Σ amount / Σ value of the same deals, as a ratio; null when there are none
-- open_ltv_coverage_pct: share of open_amount that these two cover, in percent; null when open_amount is 0
-- open_average_amount: open_amount / open_deals, USD, half up; null when nothing is open
-- open_median_amount: USD, the mean of the two middle ones half up; null when nothing is open
-- open_largest_amount: USD; null when nothing is open
-- ended_deals: deals whose status is of class ended_funded or ended_unfunded
-- ended_amount: their sum, USD
-- pipeline_deals: deals whose status is of class pipeline
-- pipeline_amount: their sum, USD
-- funded_deals: deals whose status is of class funded
-- funded_amount: their sum, USD
-- funded_wa_ltv: as open_wa_ltv, of the funded deals; null when no amount has an ltv of at most 1.5
-- funded_pooled_ltv: as open_pooled_ltv, of the funded deals; null when none has an ltv of at most 1.5
-- funded_ltv_coverage_pct: share of funded_amount that these two cover, in percent; null when funded_amount is 0
-- funded_average_amount: funded_amount / funded_deals, USD, half up; null when nothing is funded
-- funded_median_amount: USD, the mean of the two middle ones half up; null when nothing is funded
-- funded_largest_amount: USD; null when nothing is funded
with
deals as (
  select
    loan_amount,
    status_class = 'pipeline' as is_pipeline,
    status_class = 'funded' as is_funded,
    status_class not in ('ended_funded', 'ended_unfunded') as is_open,
    case when ltv <= 1.5 then cast(loan_amount as decimal(28, 2)) * ltv end as weighted_ltv,
    case when ltv <= 1.5 then loan_amount end as valued_amount,
    case when ltv <= 1.5 then property_value end as value
  from core.deal
),

-- Few rows: a filter for each column would be evaluated for each deal.
classes as (
  select
    is_pipeline,
    is_funded,
    is_open,
    count(*) as deals,
    sum(loan_amount) as amount,
    sum(weighted_ltv) as weighted_ltv,
    sum(valued_amount) as valued_amount,
    sum(value) as value,
    max(loan_amount) as largest_amount
  from deals
  group by
    is_pipeline,
    is_funded,
    is_open
),

totals as (
  select
    coalesce(sum(deals), 0) as deals,
    coalesce(sum(amount), 0) as amount,
    coalesce(sum(deals) filter (where is_open), 0) as open_deals,
    coalesce(sum(amount) filter (where is_open), 0) as open_amount,
    sum(weighted_ltv) filter (where is_open) as open_weighted_ltv,
    sum(valued_amount) filter (where is_open) as open_valued_amount,
    sum(value) filter (where is_open) as open_value,
    max(largest_amount) filter (where is_open) as open_largest_amount,
    coalesce(sum(deals) filter (where is_pipeline), 0) as pipeline_deals,
    coalesce(sum(amount) filter (where is_pipeline), 0) as pipeline_amount,
    coalesce(sum(deals) filter (where is_funded), 0) as funded_deals,
    coalesce(sum(amount) filter (where is_funded), 0) as funded_amount,
    sum(weighted_ltv) filter (where is_funded) as funded_weighted_ltv,
    sum(valued_amount) filter (where is_funded) as funded_valued_amount,
    sum(value) filter (where is_funded) as funded_value,
    max(largest_amount) filter (where is_funded) as funded_largest_amount
  from classes
),

-- The two in the middle, which are one where their number is odd.
middle as (
  select
    quantile_disc(loan_amount, 0.5) filter (where is_open) as open_lower,
    -quantile_disc(-loan_amount, 0.5) filter (where is_open) as open_upper,
    quantile_disc(loan_amount, 0.5) filter (where is_funded) as funded_lower,
    -quantile_disc(-loan_amount, 0.5) filter (where is_funded) as funded_upper
  from deals
)

select
  cast(getvariable('as_of') as date) as as_of,
  cast(totals.deals as bigint) as deals,
  cast(totals.amount as decimal(38, 2)) as amount,
  cast(totals.open_deals as bigint) as open_deals,
  cast(totals.open_amount as decimal(38, 2)) as open_amount,
  round(totals.open_weighted_ltv / nullif(totals.open_valued_amount, 0), 9) as open_wa_ltv,
  round(totals.open_valued_amount / nullif(totals.open_value, 0), 9) as open_pooled_ltv,
  round(coalesce(totals.open_valued_amount, 0) / nullif(totals.open_amount, 0) * 100, 6) as open_ltv_coverage_pct,
  cast(
    cast((2 * cast(totals.open_amount * 100 as hugeint) + totals.open_deals) // (2 * nullif(totals.open_deals, 0)) as decimal(28, 0))
    * 0.01 as decimal(18, 2)
  ) as open_average_amount,
  cast((middle.open_lower + cast(middle.open_upper as decimal(28, 2))) * 0.5 as decimal(18, 2)) as open_median_amount,
  totals.open_largest_amount,
  cast(totals.deals - totals.open_deals as bigint) as ended_deals,
  cast(totals.amount - totals.open_amount as decimal(38, 2)) as ended_amount,
  cast(totals.pipeline_deals as bigint) as pipeline_deals,
  cast(totals.pipeline_amount as decimal(38, 2)) as pipeline_amount,
  cast(totals.funded_deals as bigint) as funded_deals,
  cast(totals.funded_amount as decimal(38, 2)) as funded_amount,
  round(totals.funded_weighted_ltv / nullif(totals.funded_valued_amount, 0), 9) as funded_wa_ltv,
  round(totals.funded_valued_amount / nullif(totals.funded_value, 0), 9) as funded_pooled_ltv,
  round(coalesce(totals.funded_valued_amount, 0) / nullif(totals.funded_amount, 0) * 100, 6) as funded_ltv_coverage_pct,
  cast(
    cast((2 * cast(totals.funded_amount * 100 as hugeint) + totals.funded_deals) // (2 * nullif(totals.funded_deals, 0)) as decimal(28, 0))
    * 0.01 as decimal(18, 2)
  ) as funded_average_amount,
  cast((middle.funded_lower + cast(middle.funded_upper as decimal(28, 2))) * 0.5 as decimal(18, 2)) as funded_median_amount,
  totals.funded_largest_amount
from totals
cross join middle
