-- How concentrated the open and the funded amount are on single deals, programs, states and borrowers.
-- grain: dimension
-- check: unique(dimension)
-- check: not_null(dimension)
-- check: accepted(dimension, deal, loan_program, state, borrower)
-- check: between(open_hhi, 0, 10000)
-- check: between(funded_hhi, 0, 10000)
--
-- dimension: deal, loan_program, state, or borrower; deals whose program or state is unknown form one bucket, `unknown`. A deal
--   counts with its primary borrower, or by itself if none is known; there is no row for borrowers if none is known at all
-- open_top_1_pct: share of the largest bucket in the open amount, in percent; null when that is 0
-- open_top_5_pct: share of the five largest together; null when the open amount is 0
-- open_top_10_pct: share of the ten largest together; null when the open amount is 0
-- open_hhi: Herfindahl-Hirschman index, Σ (share in percent)²: 10,000 is all in one bucket; null when the open amount is 0.
--   As in the Merger Guidelines of the U.S. Department of Justice and the FTC
-- funded_top_1_pct: share of the largest bucket in the funded amount, in percent; null when that is 0
-- funded_top_5_pct: share of the five largest together; null when the funded amount is 0
-- funded_top_10_pct: share of the ten largest together; null when the funded amount is 0
-- funded_hhi: the same index over the funded amount; null when that is 0
with
dimensions as (
  select unnest(['deal', 'loan_program', 'state']) as dimension
  union all
  select 'borrower' as dimension
  where exists (select 1 from core.borrower)
),

buckets as (
  select
    'deal' as dimension,
    cast(loan_amount as decimal(38, 2)) as open_amount,
    case when status_class = 'funded' then loan_amount else 0 end as funded_amount
  from core.deal
  where status_class not in ('ended_funded', 'ended_unfunded')
  union all
  select
    dimension,
    open_amount,
    funded_amount
  from mart.portfolio_breakdown
  union all
  select
    'borrower' as dimension,
    open_amount,
    funded_amount
  from work.borrower_exposure
),

-- In whole units of 10^-15 of the total: their squares add up exactly, in any order, and never beyond 10^30.
shares as (
  select
    buckets.dimension,
    buckets.open_amount,
    buckets.funded_amount,
    cast(buckets.open_amount / nullif(summary.open_amount, 0) * 1e15 as hugeint) as open_share,
    cast(buckets.funded_amount / nullif(summary.funded_amount, 0) * 1e15 as hugeint) as funded_share
  from buckets
  cross join mart.portfolio_summary as summary
),

sums as (
  select
    dimension,
    max(open_amount) as open_top_1,
    list_sum(max(open_amount, 5)) as open_top_5,
    list_sum(max(open_amount, 10)) as open_top_10,
    sum(open_share * open_share) as open_squares,
    max(funded_amount) as funded_top_1,
    list_sum(max(funded_amount, 5)) as funded_top_5,
    list_sum(max(funded_amount, 10)) as funded_top_10,
    sum(funded_share * funded_share) as funded_squares
  from shares
  group by dimension
)

select
  dimensions.dimension,
  round(sums.open_top_1 / nullif(summary.open_amount, 0) * 100, 6) as open_top_1_pct,
  round(sums.open_top_5 / nullif(summary.open_amount, 0) * 100, 6) as open_top_5_pct,
  round(sums.open_top_10 / nullif(summary.open_amount, 0) * 100, 6) as open_top_10_pct,
  round(sums.open_squares / 1e26, 6) as open_hhi,
  round(sums.funded_top_1 / nullif(summary.funded_amount, 0) * 100, 6) as funded_top_1_pct,
  round(sums.funded_top_5 / nullif(summary.funded_amount, 0) * 100, 6) as funded_top_5_pct,
  round(sums.funded_top_10 / nullif(summary.funded_amount, 0) * 100, 6) as funded_top_10_pct,
  round(sums.funded_squares / 1e26, 6) as funded_hhi
from dimensions
cross join mart.portfolio_summary as summary
left join sums on sums.dimension = dimensions.dimension
