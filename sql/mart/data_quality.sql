-- How far the portfolio's numbers can be trusted, and where the source was not as its contract has it. Quarantine and
-- drift are those of the last walk that counts.
-- grain: metric
-- check: unique(metric)
-- check: not_null(metric, deals)
--
-- metric: what is lacking or odd; `drift <kind> <field> <value>` for each finding of the last walk
-- value: percent (0 to 100), null where there is nothing to take it of; `coverage property_value` of the amount that
--   has a positive value, `coverage loan_program` of the deals that have a program, `censored …` of the funded deals,
--   `quarantined` and `drift …` of the records of the last walk, all else of the deals
-- deals: deals concerned (for coverage, those without); `quarantined` and `drift …`: records
with
last_walk as (
  select *
  from mart.run
  where stream = 'deal'
  qualify recorded_at = max(recorded_at) over ()
),

first_sight as (
  select
    deal_id,
    status_class = 'funded' as was_funded
  from core.deal_history
  where version = 1
),

totals as (
  select
    count(*) as deals,
    coalesce(sum(deal.loan_amount), 0) as amount,
    coalesce(sum(deal.loan_amount) filter (where deal.property_value > 0), 0) as valued_amount,
    count(*) filter (where coalesce(deal.property_value <= 0, true)) as unvalued,
    count(*) filter (where deal.loan_program is null) as without_program,
    count(*) filter (where deal.state = 'unknown') as unparsed,
    count(*) filter (where deal.is_missing) as missing,
    count(*) filter (where deal.status_class = 'funded') as funded,
    count(*) filter (where deal.status_class = 'funded' and first_sight.was_funded) as seen_funded,
    count(*) filter (where deal.status_class = 'funded' and not deal.funded_on_is_exact) as inexact
  from core.deal as deal
  inner join first_sight on first_sight.deal_id = deal.deal_id
),

shares as (
  select
    'coverage property_value' as metric,
    valued_amount as part,
    amount as whole,
    unvalued as deals
  from totals
  union all
  select
    'coverage loan_program' as metric,
    deals - without_program as part,
    deals as whole,
    without_program as deals
  from totals
  union all
  select
    'unparsed address' as metric,
    unparsed as part,
    deals as whole,
    unparsed as deals
  from totals
  union all
  select
    'missing' as metric,
    missing as part,
    deals as whole,
    missing as deals
  from totals
  union all
  select
    'censored funded at first sight' as metric,
    seen_funded as part,
    funded as whole,
    seen_funded as deals
  from totals
  union all
  select
    'censored inexact funding date' as metric,
    inexact as part,
    funded as whole,
    inexact as deals
  from totals
  union all
  select
    'quarantined' as metric,
    coalesce(sum(quarantined), 0) as part,
    coalesce(sum(records), 0) as whole,
    coalesce(sum(quarantined), 0) as deals
  from last_walk
  union all
  select
    concat_ws(' ', 'drift', drift.kind, drift.path, drift.value) as metric,
    drift.records as part,
    last_walk.records as whole,
    drift.records as deals
  from raw.drift
  inner join last_walk on last_walk.walk_id = drift.walk_id and last_walk.stream = drift.stream
)

select
  metric,
  round(part / nullif(whole, 0) * 100, 6) as value,
  cast(deals as bigint) as deals
from shares
