-- How concentrated the portfolio's amount is on single deals, programs, states and borrowers.
-- grain: dimension
-- check: unique(dimension)
-- check: not_null(dimension)
-- check: accepted(dimension, deal, loan_program, state, borrower)
-- check: between(hhi, 0, 10000)
-- check: between(funded_hhi, 0, 10000)
--
-- dimension: deal, loan_program, state, or borrower; deals whose program or state is unknown are one bucket of it,
--   `unknown`. A deal counts with its primary borrower, and by itself where none is known; the row is absent where no
--   borrower is known at all
-- top_1_pct: share of the largest bucket in the whole amount, in percent; null when there is no amount
-- top_5_pct: share of the five largest together
-- top_10_pct: share of the ten largest together
-- hhi: Herfindahl-Hirschman index, the sum of the squared shares in percent; 10,000 is all in one bucket
-- funded_top_1_pct: share of the largest bucket in the funded amount, in percent; null when nothing is funded
-- funded_top_5_pct: share of the five largest together
-- funded_top_10_pct: share of the ten largest together
-- funded_hhi: the same index over the funded amount
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
    cast(loan_amount as decimal(38, 2)) as amount,
    case when status_class = 'funded' then loan_amount else 0 end as funded_amount
  from core.deal
  union all
  select
    dimension,
    amount,
    funded_amount
  from mart.portfolio_breakdown
  where dimension in ('loan_program', 'state')
  union all
  select
    'borrower' as dimension,
    amount,
    funded_amount
  from work.borrower_exposure
),

-- In whole units of 10^-15 of the total: their squares add up exactly, in any order, and never beyond 10^30.
shares as (
  select
    buckets.dimension,
    buckets.amount,
    buckets.funded_amount,
    cast(buckets.amount / nullif(summary.amount, 0) * 1e15 as hugeint) as share,
    cast(buckets.funded_amount / nullif(summary.funded_amount, 0) * 1e15 as hugeint) as funded_share
  from buckets
  cross join mart.portfolio_summary as summary
),

sums as (
  select
    dimension,
    max(amount) as top_1,
    list_sum(max(amount, 5)) as top_5,
    list_sum(max(amount, 10)) as top_10,
    sum(share * share) as squares,
    max(funded_amount) as funded_top_1,
    list_sum(max(funded_amount, 5)) as funded_top_5,
    list_sum(max(funded_amount, 10)) as funded_top_10,
    sum(funded_share * funded_share) as funded_squares
  from shares
  group by dimension
)

select
  dimensions.dimension,
  round(sums.top_1 / nullif(summary.amount, 0) * 100, 6) as top_1_pct,
  round(sums.top_5 / nullif(summary.amount, 0) * 100, 6) as top_5_pct,
  round(sums.top_10 / nullif(summary.amount, 0) * 100, 6) as top_10_pct,
  round(sums.squares / 1e26, 6) as hhi,
  round(sums.funded_top_1 / nullif(summary.funded_amount, 0) * 100, 6) as funded_top_1_pct,
  round(sums.funded_top_5 / nullif(summary.funded_amount, 0) * 100, 6) as funded_top_5_pct,
  round(sums.funded_top_10 / nullif(summary.funded_amount, 0) * 100, 6) as funded_top_10_pct,
  round(sums.funded_squares / 1e26, 6) as funded_hhi
from dimensions
cross join mart.portfolio_summary as summary
left join sums on sums.dimension = dimensions.dimension
