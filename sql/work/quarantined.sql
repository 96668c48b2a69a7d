-- Every record in quarantine that as_of and known_at let count: what other models know of the quarantine they read here.
-- A record that was replayed later stays in it, its text pruned or not. Built for other models and not kept.
-- grain: quarantine_id
--
-- quarantine_id: names the record in quarantine
-- stream: deal, borrower or document
-- record_id: the service's id; null when it could not be read
-- observed_at: start of the request that showed it, UTC
-- business_date: the day it counts for
select
  quarantine_id,
  stream,
  record_id,
  observed_at,
  business_date
from raw.quarantine
where
  business_date <= cast(getvariable('as_of') as date)
  and recorded_at <= cast(getvariable('known_at') as timestamp)
