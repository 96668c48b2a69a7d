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
-- days_in_previous: calendar days from the business date on which from_status began to observed_on, weekends included; null
--   when that spell began unseen, as at the first walk
select
  deal_id,
  status_before as from_status,
  status as to_status,
  began_at as observed_at,
  began_on as observed_on,
  case
    when spell > 2 or previous_known_before is not null then cast(began_on - began_before as bigint)
  end as days_in_previous
from work.status_spell
where spell > 1
