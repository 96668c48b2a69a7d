-- How far the portfolio's numbers can be trusted, and where the source was not as its contract has it. Quarantine and
-- drift are those of the last walk that counts. Borrowers and documents have metrics of their own as soon as a list of
-- them has been read; what is quarantined of them is that of the last list read of each deal.
-- grain: metric
-- check: unique(metric)
-- check: not_null(metric, deals)
--
-- metric: `coverage property_value`: the amount whose deals have a positive value. `coverage
--   value_confirmed_on`: the deals whose value an answer ever held. `ltv above 10`: their value is taken for a typo, and
--   their ltv for unknown. `coverage loan_program`: the deals that have a program. `unparsed address`: no state was found in it. `unclassified status`: not in seed.status. `missing`:
--   absent from the last walk. `censored funded at first sight`: funded when first seen. `censored inexact funding date`:
--   more than a day between funded_after and funded_on. `censored created before first walk`: of their months only the
--   deals are known that were still there. `censored vintage`: their cohort is left out of mart.vintage_curve. `censored
--   stage began unseen`: changes of status left out of mart.stage_duration because nobody knows since when the deal was
--   in the one before. `censored stage vanished`: vanished before they left their status. `no funnel stage`: never seen
--   in a status of class pipeline, funded or ended_funded. `quarantined`: records that failed normalisation. `drift
--   <kind> <field> <value>`: one for each finding. Of borrowers, and likewise of documents: `coverage borrowers`: the
--   deals whose list was read. `coverage borrowers email_hash`, `… linked_at`, `coverage documents category`, `…
--   uploaded_at`: the records that have one. `missing borrowers`, `quarantined borrowers`, `drift borrowers <kind>
--   <field> <value>`: as for deals
-- value: percent (0 to 100), null where there is nothing to take it of: of the amount (`coverage property_value`), of the
--   funded deals (`censored funded …`, `censored inexact …`), of all deals ever seen (`censored created …`, `censored
--   vintage`, `censored stage vanished`, `no funnel stage`), of all changes of status (`censored stage began unseen`),
--   of the records of the last walk (`quarantined`, `drift …`), of the known borrowers (`coverage borrowers <field>`,
--   `missing borrowers`), of the records of the last lists (`quarantined borrowers`), else of the present deals
-- deals: deals concerned; for coverage, those without; for `quarantined`, `drift …` and fields of borrowers and
--   documents records
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
    count(*) filter (where deal.property_value > 0 and deal.ltv is null) as with_odd_value,
    count(*) filter (where deal.value_confirmed_on is null) as unconfirmed,
    count(*) filter (where deal.loan_program is null) as without_program,
    count(*) filter (where deal.state = 'unknown') as unparsed,
    count(*) filter (where deal.status_class = 'unclassified') as unclassified,
    count(*) filter (where deal.is_missing) as missing,
    count(*) filter (where deal.status_class = 'funded') as funded,
    count(*) filter (where deal.status_class = 'funded' and first_sight.was_funded) as seen_funded,
    count(*) filter (where deal.status_class = 'funded' and not deal.funded_on_is_exact) as inexact
  from core.deal as deal
  inner join first_sight on first_sight.deal_id = deal.deal_id
),

lives as (
  select
    count(*) as deals,
    count(*) filter (where life.created_on < first_walk.first_on) as created_before,
    count(*) filter (where date_trunc('month', life.created_on) < first_walk.first_on) as outside_vintage,
    count(*) filter (where not life.is_present) as vanished,
    count(*) filter (where life.reached_order is null) as without_stage
  from work.deal_life as life
  cross join work.first_walk as first_walk
),

changes as (
  select
    count(*) as changes,
    count(*) filter (where days_in_previous is null) as began_unseen
  from core.status_change
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
    'coverage value_confirmed_on' as metric,
    deals - unconfirmed as part,
    deals as whole,
    unconfirmed as deals
  from totals
  union all
  select
    'ltv above 10' as metric,
    with_odd_value as part,
    deals as whole,
    with_odd_value as deals
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
    'unclassified status' as metric,
    unclassified as part,
    deals as whole,
    unclassified as deals
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
    'censored created before first walk' as metric,
    created_before as part,
    deals as whole,
    created_before as deals
  from lives
  union all
  select
    'censored vintage' as metric,
    outside_vintage as part,
    deals as whole,
    outside_vintage as deals
  from lives
  union all
  select
    'censored stage began unseen' as metric,
    began_unseen as part,
    changes as whole,
    began_unseen as deals
  from changes
  union all
  select
    'censored stage vanished' as metric,
    vanished as part,
    deals as whole,
    vanished as deals
  from lives
  union all
  select
    'no funnel stage' as metric,
    without_stage as part,
    deals as whole,
    without_stage as deals
  from lives
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
  union all
  select
    metric,
    part,
    whole,
    deals
  from work.child_quality
)

select
  metric,
  round(part / nullif(whole, 0) * 100, 6) as value,
  cast(deals as bigint) as deals
from shares
