-- Every observed change of status; a deal's first appearance is not one.
-- grain: deal_id, observed_at, to_status
-- per: deal_id
-- check: not_null(deal_id, from_status, to_status, observed_at, observed_on)
--
-- deal_id: the service's id
-- from_status: the status before
-- to_status: the status after
-- observed_at: start of the request that showed it, UTC
-- observed_on: business date of that request
-- days_in_previous: calendar days from the day on which from_status began to observed_on, weekends included: for the status a deal
--   is created in from created_on; null when nobody knows that day: the deal was first seen in a later status, or the change to
--   from_status was seen more than a day after the last look
select
  change.deal_id,
  change.status_before as from_status,
  change.status as to_status,
  change.began_at as observed_at,
  change.began_on as observed_on,
  cast(greatest(change.began_on, previous.started_on) - previous.started_on as bigint) as days_in_previous
from work.status_spell as change
inner join work.stage_spell as previous
  on previous.deal_id = change.deal_id and previous.spell = change.spell - 1
