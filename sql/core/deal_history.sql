-- Every version of every deal: a row for each change in what was known of it.
-- grain: deal_id, version
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
-- property_address: free text, as the service has it
-- loan_amount: USD
-- property_value: USD; null when unknown
-- loan_program: null when unknown
-- status: as the service has it
-- status_class: pipeline, funded, ended_funded, ended_unfunded; unclassified when seed.status does not list the status
select
  changes.deal_id,
  row_number() over history as version,
  changes.change,
  changes.observed_at as valid_from,
  lead(changes.observed_at) over history as valid_to,
  changes.business_date,
  changes.property_address,
  cast(changes.loan_amount as decimal(18, 2)) as loan_amount,
  cast(changes.property_value as decimal(18, 2)) as property_value,
  changes.loan_program,
  changes.status,
  coalesce(status.class, 'unclassified') as status_class
from work.deal_observation as changes
left join seed.status on status.status = changes.status
where changes.change is not null
window history as (partition by changes.deal_id order by changes.position)
