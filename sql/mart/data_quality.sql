-- How far the portfolio's numbers can be trusted, and where the source deviated from its contract. Quarantine and drift are those
-- of the last walk that counts. Borrowers and documents have metrics of their own once a list of them has been read; their
-- quarantine is that of the last list read of each deal.
-- grain: scope, metric, field, found
-- check: unique(scope, metric, field, found)
-- check: not_null(scope, metric, deals)
-- check: accepted(scope, deals, borrowers, documents)
--
-- scope: deals, borrowers or documents: whose records it is about
-- metric: what is measured. `coverage`: the amount of the deals with a positive value (property_value), the deals whose value
--   an answer ever held (value_confirmed_on), and those with a program (loan_program); for borrowers and documents, without a
--   field the deals whose list was read, with a field the records that have it. `ltv_above_10`: the value is taken for a typo,
--   and the ltv for unknown. `ltv_above_1_5`: the ltv is in core.deal, and left out of every average. `unparsed`: no state was
--   found in the address. `unclassified`: not in seed.status. `missing`: absent from the last walk.
--   `censored_funded_at_first_sight`: funded when first seen. `censored_inexact_funding_date`: funded_on is not known, or more
--   than a day after funded_after. `censored_created_before_first_walk`: of their months, only the deals that were still there
--   are known. `censored_funding_curve`: their cohort is left out of mart.funding_curve. `censored_vintage`: they were funded,
--   but no cohort of mart.vintage holds them, because that was before the first walk or in its month, or nobody saw it.
--   `censored_stage_began_unseen`: spells that are left out of mart.stage_duration because nobody knows how long they had lasted
--   when first seen. `no_funnel_stage`: never seen in a status of class pipeline, funded or ended_funded. `quarantined`: records
--   of the list that failed normalisation; own pages count in `details_failed` of mart.run. `drift_new_field`,
--   `drift_missing_field`, `drift_unknown_value`: one for each finding that neither `fields.json` nor `seed.status` explains
-- field: the column it is about, for drift the path in the source's records; null if it is about the whole record
-- found: the value that was found, for `drift_unknown_value`; null if the metric is another
-- value: percent (0 to 100), null if there is nothing to divide by: of the amount (`coverage` of property_value), of the funded
--   deals (`censored_funded_at_first_sight`, `censored_inexact_funding_date`), of all deals ever seen
--   (`censored_created_before_first_walk`, `censored_funding_curve`, `no_funnel_stage`), of all deals ever funded
--   (`censored_vintage`), of all spells in a status (`censored_stage_began_unseen`), of the records of the last walk or lists
--   (`quarantined`, drift), of the known borrowers or documents (`coverage` of a field of theirs, `missing`), else of the present
--   deals
-- deals: deals concerned; for `censored_stage_began_unseen` spells; for `coverage` those without; for `quarantined`, drift, and
--   all metrics of borrowers and documents except their `coverage` without a field, records
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
    count(*) filter (where deal.ltv > 1.5) as with_high_ltv,
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
    count(*) filter (where life.created_on < life.first_walk_on) as created_before,
    count(*) filter (where date_trunc('month', life.created_on) < life.first_walk_on) as outside_curve,
    count(*) filter (where life.reached_funded_on is not null) as ever_funded,
    count(*) filter (where life.reached_funded_on is not null and origination.cohort_month is null) as outside_vintage,
    count(*) filter (where life.reached_order is null) as without_stage
  from work.deal_life as life
  left join work.funded_movement as origination
    on origination.deal_id = life.deal_id and origination.term = 'originated'
),

stages as (
  select
    count(*) as spells,
    count(*) filter (where started_on is null) as began_unseen
  from work.stage_spell
),

listed as (
  select
    listed.stream,
    count(*) as deals,
    cast(sum(listed.records) as bigint) as records,
    cast(sum(listed.quarantined) as bigint) as quarantined
  from work.listed_deal as listed
  inner join core.deal as deal on deal.deal_id = listed.deal_id
  group by listed.stream
),

kept as (
  select
    'borrower' as stream,
    count(*) as records,
    count(*) filter (where is_missing) as missing,
    'email_hash' as named,
    count(email_hash) as with_name,
    'linked_at' as dated,
    count(linked_at) as with_date
  from core.borrower
  union all
  select
    'document' as stream,
    count(*) as records,
    count(*) filter (where is_missing) as missing,
    'category' as named,
    count(*) filter (where category <> 'unknown') as with_name,
    'uploaded_at' as dated,
    count(uploaded_at) as with_date
  from core.document
),

shares as (
  select
    'deals' as scope,
    unnest([
      {'metric': 'coverage', 'field': 'property_value', 'part': cast(valued_amount as decimal(38, 2)), 'whole': amount, 'deals': unvalued},
      {'metric': 'coverage', 'field': 'value_confirmed_on', 'part': deals - unconfirmed, 'whole': deals, 'deals': unconfirmed},
      {'metric': 'coverage', 'field': 'loan_program', 'part': deals - without_program, 'whole': deals, 'deals': without_program},
      {'metric': 'ltv_above_10', 'field': 'property_value', 'part': with_odd_value, 'whole': deals, 'deals': with_odd_value},
      {'metric': 'ltv_above_1_5', 'field': 'property_value', 'part': with_high_ltv, 'whole': deals, 'deals': with_high_ltv},
      {'metric': 'unparsed', 'field': 'property_address', 'part': unparsed, 'whole': deals, 'deals': unparsed},
      {'metric': 'unclassified', 'field': 'status', 'part': unclassified, 'whole': deals, 'deals': unclassified},
      {'metric': 'missing', 'field': null, 'part': missing, 'whole': deals, 'deals': missing},
      {'metric': 'censored_funded_at_first_sight', 'field': null, 'part': seen_funded, 'whole': funded, 'deals': seen_funded},
      {'metric': 'censored_inexact_funding_date', 'field': null, 'part': inexact, 'whole': funded, 'deals': inexact}
    ], recursive := true),
    null as found
  from totals
  union all
  select
    'deals' as scope,
    unnest([
      {'metric': 'censored_created_before_first_walk', 'field': null, 'part': created_before, 'whole': deals, 'deals': created_before},
      {'metric': 'censored_funding_curve', 'field': null, 'part': outside_curve, 'whole': deals, 'deals': outside_curve},
      {'metric': 'censored_vintage', 'field': null, 'part': outside_vintage, 'whole': ever_funded, 'deals': outside_vintage},
      {'metric': 'no_funnel_stage', 'field': null, 'part': without_stage, 'whole': deals, 'deals': without_stage}
    ], recursive := true),
    null as found
  from lives
  union all
  select
    'deals' as scope,
    'censored_stage_began_unseen' as metric,
    null as field,
    began_unseen as part,
    spells as whole,
    began_unseen as deals,
    null as found
  from stages
  union all
  select
    'deals' as scope,
    'quarantined' as metric,
    null as field,
    coalesce(sum(quarantined), 0) as part,
    coalesce(sum(records), 0) as whole,
    coalesce(sum(quarantined), 0) as deals,
    null as found
  from last_walk
  union all
  select
    concat(listed.stream, 's') as scope,
    unnest([
      {'metric': 'coverage', 'field': null, 'part': listed.deals, 'whole': totals.deals, 'deals': totals.deals - listed.deals},
      {'metric': 'coverage', 'field': named, 'part': with_name, 'whole': kept.records, 'deals': kept.records - with_name},
      {'metric': 'coverage', 'field': dated, 'part': with_date, 'whole': kept.records, 'deals': kept.records - with_date},
      {'metric': 'missing', 'field': null, 'part': kept.missing, 'whole': kept.records, 'deals': kept.missing},
      {'metric': 'quarantined', 'field': null, 'part': quarantined, 'whole': listed.records, 'deals': quarantined}
    ], recursive := true),
    null as found
  from listed
  inner join kept on kept.stream = listed.stream
  cross join totals
  union all
  select
    concat(stream, 's') as scope,
    concat('drift_', kind) as metric,
    path as field,
    records as part,
    whole,
    records as deals,
    value as found
  from work.source_drift
)

select
  scope,
  metric,
  cast(field as varchar) as field,
  cast(found as varchar) as found,
  round(part / nullif(whole, 0) * 100, 6) as value,
  cast(deals as bigint) as deals
from shares
