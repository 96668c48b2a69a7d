-- The portfolio at as_of by six dimensions; the buckets of each add up to mart.portfolio_summary.
-- grain: dimension, bucket
-- order: dimension, sort_order
-- adds_up: deals, amount, funded_deals, funded_amount, open_deals, open_amount, ended_deals, ended_amount
-- check: unique(dimension, sort_order)
-- check: unique(dimension, bucket)
-- check: not_null(dimension, bucket, sort_order, deals, amount, funded_deals, funded_amount)
-- check: not_null(open_deals, open_amount, ended_deals, ended_amount)
-- check: accepted(dimension, status, loan_program, state, size_band, ltv_band, created_month)
--
-- dimension: status, loan_program, state, size_band, ltv_band or created_month
-- bucket: a status, program, state code, band or month (YYYY-MM); `unknown` if there is none
-- sort_order: place of the bucket within its dimension, from 1
-- deals: deals of every status
-- amount: sum of loan_amount, USD
-- share_pct: share of the whole portfolio's amount, in percent; null when that is 0
-- funded_deals: deals whose status is of class funded
-- funded_amount: their sum, USD
-- funded_share_pct: share of the whole funded amount, in percent; null when that is 0
-- open_deals: deals whose status is of class pipeline, funded or unclassified
-- open_amount: their sum, USD
-- ended_deals: deals whose status is of class ended_funded or ended_unfunded
-- ended_amount: their sum, USD
-- open_wa_ltv: loan-to-value of the open deals weighted by amount, Σ(amount × ltv) / Σ amount, as a ratio, over those with an
--   ltv of at most 1.5; null when no amount has one
-- open_pooled_ltv: Σ amount / Σ value of the same deals, as a ratio; null when there are none
-- funded_wa_ltv: as open_wa_ltv, of the funded deals; null when no amount has an ltv of at most 1.5
-- funded_pooled_ltv: as open_pooled_ltv, of the funded deals; null when none has an ltv of at most 1.5
with
present as (
  select
    *,
    cast(loan_amount as decimal(28, 2)) * averaged_ltv as weighted_ltv,
    case when averaged_ltv is not null then loan_amount end as valued_amount,
    case when averaged_ltv is not null then property_value end as value
  from work.deal_standing
  where to_day is null
),

-- By class first: sums without a filter take half the time.
classed as (
  select
    case
      when grouping(status) = 0 then 'status'
      when grouping(loan_program) = 0 then 'loan_program'
      when grouping(state) = 0 then 'state'
      when grouping(size_band) = 0 then 'size_band'
      when grouping(ltv_band) = 0 then 'ltv_band'
      else 'created_month'
    end as dimension,
    coalesce(status, loan_program, state, size_band, ltv_band, created_month) as bucket,
    is_open,
    status_class = 'funded' as is_funded,
    count(*) as deals,
    sum(loan_amount) as amount,
    sum(weighted_ltv) as weighted_ltv,
    sum(valued_amount) as valued_amount,
    sum(value) as value
  from present
  group by grouping sets (
    (is_open, status_class, status),
    (is_open, status_class, loan_program),
    (is_open, status_class, state),
    (is_open, status_class, size_band),
    (is_open, status_class, ltv_band),
    (is_open, status_class, created_month)
  )
),

totals as (
  select
    dimension,
    bucket,
    sum(deals) as deals,
    sum(amount) as amount,
    coalesce(sum(deals) filter (where is_funded), 0) as funded_deals,
    coalesce(sum(amount) filter (where is_funded), 0) as funded_amount,
    coalesce(sum(deals) filter (where is_open), 0) as open_deals,
    coalesce(sum(amount) filter (where is_open), 0) as open_amount,
    sum(weighted_ltv) filter (where is_open) as open_weighted_ltv,
    sum(valued_amount) filter (where is_open) as open_valued_amount,
    sum(value) filter (where is_open) as open_value,
    sum(weighted_ltv) filter (where is_funded) as funded_weighted_ltv,
    sum(valued_amount) filter (where is_funded) as funded_valued_amount,
    sum(value) filter (where is_funded) as funded_value
  from classed
  group by
    dimension,
    bucket
),

-- Buckets without a rank come after ranked ones in alphabetical order, `unknown` last.
ordered as (
  select
    totals.*,
    row_number() over (
      partition by totals.dimension
      order by rank.place nulls last, totals.bucket = 'unknown', totals.bucket
    ) as sort_order
  from totals
  left join work.bucket_rank as rank on rank.dimension = totals.dimension and rank.bucket = totals.bucket
)

select
  ordered.dimension,
  ordered.bucket,
  ordered.sort_order,
  cast(ordered.deals as bigint) as deals,
  cast(ordered.amount as decimal(38, 2)) as amount,
  round(ordered.amount / nullif(summary.amount, 0) * 100, 6) as share_pct,
  cast(ordered.funded_deals as bigint) as funded_deals,
  cast(ordered.funded_amount as decimal(38, 2)) as funded_amount,
  round(ordered.funded_amount / nullif(summary.funded_amount, 0) * 100, 6) as funded_share_pct,
  cast(ordered.open_deals as bigint) as open_deals,
  cast(ordered.open_amount as decimal(38, 2)) as open_amount,
  cast(ordered.deals - ordered.open_deals as bigint) as ended_deals,
  cast(ordered.amount - ordered.open_amount as decimal(38, 2)) as ended_amount,
  round(ordered.open_weighted_ltv / nullif(ordered.open_valued_amount, 0), 9) as open_wa_ltv,
  round(ordered.open_valued_amount / nullif(ordered.open_value, 0), 9) as open_pooled_ltv,
  round(ordered.funded_weighted_ltv / nullif(ordered.funded_valued_amount, 0), 9) as funded_wa_ltv,
  round(ordered.funded_valued_amount / nullif(ordered.funded_value, 0), 9) as funded_pooled_ltv
from ordered
cross join mart.portfolio_summary as summary
