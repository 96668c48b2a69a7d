-- Every version of every deal: a row for each change in what was known of it. A change of created_at alone is in core.field_change.
-- grain: deal_id, version
-- per: deal_id
-- check: unique(deal_id, version)
-- check: not_null(deal_id, version, change, valid_from, business_date, loan_amount, status, status_class)
-- check: accepted(change, created, updated, vanished, restored)
--
-- deal_id: the service's id
-- version: 1 for the first, without gaps
-- change: created, updated, vanished or restored, against the version before
-- valid_from: start of the request that showed it, UTC
-- valid_to: valid_from of the next version, UTC; null when nothing known supersedes this one
-- business_date: the day this version counts for
-- property_address: free text, as the service has it; null if it has none
-- loan_amount: USD
-- property_value: USD; null when unknown
-- loan_program: null when unknown or blank; `(all)` is written `[all]`
-- status: in lower case, without blanks around it, `(new)` as `[new]` and `(gone)` as `[gone]`; another spelling of it makes no
--   version
-- status_class: pipeline, funded, ended_funded, ended_unfunded; unclassified when seed.status does not list the status
with
-- If an observation changed nothing, such as a deal only going missing, there are fewer versions than observations.
renumbered as (
  select
    deal_id,
    position,
    row_number() over history as version,
    lead(observed_at) over history as valid_to
  from work.deal_observation
  where change is not null and deal_id in (select deal_id from work.deal_observation where change is null)
  window history as (partition by deal_id order by position)
)

select
  changes.deal_id,
  coalesce(renumbered.version, changes.position) as version,
  changes.change,
  changes.observed_at as valid_from,
  case when renumbered.version is null then changes.next_observed_at else renumbered.valid_to end as valid_to,
  changes.business_date,
  changes.property_address,
  cast(changes.loan_amount as decimal(18, 2)) as loan_amount,
  cast(changes.property_value as decimal(18, 2)) as property_value,
  changes.loan_program,
  changes.status,
  coalesce(status.class, 'unclassified') as status_class
from work.deal_observation as changes
left join renumbered on renumbered.deal_id = changes.deal_id and renumbered.position = changes.position
left join seed.status on status.status = changes.status
where changes.change is not null
