-- Every observed change of status; a deal's first appearance is none.
-- grain: deal_id, observed_at, to_status
-- check: not_null(deal_id, from_status, to_status, observed_at, observed_on)
--
-- deal_id: the service's id
-- from_status: the status before
-- to_status: the status after
-- observed_at: start of the request that showed it, UTC
-- observed_on: business date of that request
-- days_in_previous: whole business days spent in from_status; null when that spell began unseen, which is at the
--   first walk
with
pairs as (
  select
    *,
    lag(status) over earlier as from_status,
    lag(began_on) over earlier as began_before,
    lag(spell) over earlier = 1 and lag(known_before) over earlier is null as began_unseen
  from work.status_spell
  window earlier as (partition by deal_id order by spell)
)

select
  deal_id,
  from_status,
  status as to_status,
  began_at as observed_at,
  began_on as observed_on,
  case when not began_unseen then cast(began_on - began_before as bigint) end as days_in_previous
from pairs
where spell > 1
