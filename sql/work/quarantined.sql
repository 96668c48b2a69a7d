-- Every quarantined record of a deal that counts at as_of and known_at; other models read the quarantine only here. A record
-- that was replayed later stays in it, its text pruned or not; one whose id could not be read proves nothing of any deal and is
-- left out.
-- grain: quarantine_id
-- per: deal_id
--
-- quarantine_id: names the record in quarantine
-- deal_id: the service's id
-- observed_at: start of the request that showed it, UTC
-- business_date: the day it counts for
select
  quarantine_id,
  record_id as deal_id,
  observed_at,
  business_date
from raw.quarantine
where
  business_date <= cast(getvariable('as_of') as date)
  and recorded_at <= cast(getvariable('known_at') as timestamp)
  and stream = 'deal'
  and record_id is not null
