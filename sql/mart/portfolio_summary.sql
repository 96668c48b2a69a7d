-- The portfolio at as_of in one row. Missing deals count, vanished ones do not. Every deal is open or ended: what is
-- repaid, sold, withdrawn or declined stays in deals and amount, which tie to the source.
-- grain: as_of
-- adds_up: deals, amount, open_deals, open_amount, ended_deals, ended_amount, pipeline_deals, pipeline_amount
-- adds_up: funded_deals, funded_amount
-- check: unique(as_of)
-- check: not_null(as_of, deals, amount, open_deals, open_amount, ended_deals, ended_amount)
-- check: not_null(pipeline_deals, pipeline_amount, funded_deals, funded_amount)
--
-- as_of: business date the numbers stand for
-- deals: deals of every status
-- amount: sum of loan_amount, USD
-- open_deals: deals whose status is of class pipeline, funded or unclassified
-- open_amount: their sum, USD
-- open_wa_ltv: their loan-to-value weighted by amount, as a ratio, over those with an ltv
-- open_pooled_ltv: their sum of amounts by sum of values, as a ratio, over those with an ltv
-- ended_deals: deals whose status is of class ended_funded or ended_unfunded
-- ended_amount: their sum, USD
-- funded_wa_ltv: as open_wa_ltv, of the deals of class funded
-- funded_pooled_ltv: as open_pooled_ltv, of the deals of class funded
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
deals as (
  select
    loan_amount,
    status_class = 'pipeline' as is_pipeline,
    status_class = 'funded' as is_funded,
    status_class not in ('ended_funded', 'ended_unfunded') as is_open,
    cast(loan_amount as decimal(28, 2)) * ltv as weighted_ltv,
    case when ltv is not null then loan_amount end as valued_amount,
    case when ltv is not null then property_value end as value
  from core.deal
),

totals as (
  select
    count(*) as deals,
    coalesce(sum(loan_amount), 0) as amount,
    count(*) filter (where is_open) as open_deals,
    coalesce(sum(loan_amount) filter (where is_open), 0) as open_amount,
    sum(weighted_ltv) filter (where is_open) as open_weighted_ltv,
    sum(valued_amount) filter (where is_open) as open_valued_amount,
    sum(value) filter (where is_open) as open_value,
    count(*) filter (where is_pipeline) as pipeline_deals,
    coalesce(sum(loan_amount) filter (where is_pipeline), 0) as pipeline_amount,
    count(*) filter (where is_funded) as funded_deals,
    coalesce(sum(loan_amount) filter (where is_funded), 0) as funded_amount,
    sum(weighted_ltv) filter (where is_funded) as funded_weighted_ltv,
    sum(valued_amount) filter (where is_funded) as funded_valued_amount,
    sum(value) filter (where is_funded) as funded_value,
    sum(weighted_ltv) as weighted_ltv,
    sum(valued_amount) as valued_amount,
    sum(value) as value,
    max(loan_amount) as largest_amount
  from deals
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
  totals.open_deals,
  cast(totals.open_amount as decimal(38, 2)) as open_amount,
  round(totals.open_weighted_ltv / nullif(totals.open_valued_amount, 0), 9) as open_wa_ltv,
  round(totals.open_valued_amount / nullif(totals.open_value, 0), 9) as open_pooled_ltv,
  totals.deals - totals.open_deals as ended_deals,
  cast(totals.amount - totals.open_amount as decimal(38, 2)) as ended_amount,
  round(totals.funded_weighted_ltv / nullif(totals.funded_valued_amount, 0), 9) as funded_wa_ltv,
  round(totals.funded_valued_amount / nullif(totals.funded_value, 0), 9) as funded_pooled_ltv,
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
