-- The certificates: every applied walk that counts at as_of and known_at, with what it changed and the exact bridge to the deals
-- present after it. For borrowers and documents, a walk is the lists of single deals that one run read; what is said of deals is
-- then said of borrowers or documents, and present ones are those of the deals listed.
-- grain: recorded_at
-- check: unique(walk_id)
-- check: not_null(walk_id, stream, business_date, started_at, recorded_at, is_complete, pages, records, distinct_records, duplicates)
-- check: not_null(quarantined, amount_total, is_shifted, resumed, waited_ms, ended_how, created, updated, missing, vanished)
-- check: not_null(restored, unchanged, present_deals, present_amount, kept_quarantined_deals, kept_quarantined_amount)
-- check: not_null(kept_missing_deals, kept_missing_amount, adjusted_deals, adjusted_amount, details_fetched, details_failed)
--
-- walk_id: names the walk
-- stream: the kind of record that was walked: deal, borrower or document
-- business_date: the day it counts for
-- started_at: start of its first request, UTC
-- ended_at: when its last page was stored, UTC; null if no page was
-- recorded_at: when its changes were applied, UTC
-- is_complete: it saw the last page; for borrowers and documents: it read every list that was due
-- pages: responses
-- records: records in them
-- distinct_records: different ids that were read
-- duplicates: records whose id came again
-- quarantined: records that failed normalisation
-- amount_total: sum of loan_amount over distinct_records, USD; 0 for borrowers and documents
-- is_shifted: the list moved while it was walked
-- resumed: how often it was resumed
-- accepted: what an operator accepted beforehand: shrink, change, growth, source or envelope; null if nothing
-- accepted_by: the user who did; null if nobody
-- accepted_why: the reason given; null if none
-- waited_ms: time spent waiting for rate limits
-- envelope: where the paging fields were; null if no page was stored, and for borrowers and documents
-- cursor_digest: sha256 over the cursors in order; null if no page was stored, and for borrowers and documents
-- ended_how: how it ended
-- created: deals seen for the first time
-- updated: deals whose content changed; another spelling of a status is no change
-- missing: deals newly absent
-- vanished: deals confirmed gone
-- restored: vanished deals that came back
-- unchanged: deals seen with the same content
-- present_deals: deals present after it
-- present_amount: their sum, USD
-- kept_quarantined_deals: of these, kept because their record was in quarantine
-- kept_quarantined_amount: their sum, USD
-- kept_missing_deals: of these, kept because absence was not confirmed
-- kept_missing_amount: their sum, USD
-- adjusted_deals: deals that observations outside its list added: own pages, those of ended deals that a walk of one status no
--   longer looks for from earlier walks, and webhooks
-- adjusted_amount: amount that observations outside its list added, USD
-- details_fetched: deals whose own page, or list of borrowers or documents, was fetched
-- details_failed: deals whose own page or list could not be fetched, or whose own page is in quarantine
select
  walk_id,
  stream,
  business_date,
  started_at,
  ended_at,
  recorded_at,
  is_complete,
  pages,
  records,
  distinct_records,
  duplicates,
  quarantined,
  amount_total,
  is_shifted,
  resumed,
  accepted,
  accepted_by,
  accepted_why,
  waited_ms,
  envelope,
  cursor_digest,
  ended_how,
  created,
  updated,
  missing,
  vanished,
  restored,
  unchanged,
  present_deals,
  present_amount,
  kept_quarantined_deals,
  kept_quarantined_amount,
  kept_missing_deals,
  kept_missing_amount,
  adjusted_deals,
  adjusted_amount,
  details_fetched,
  details_failed
from raw.walk
where
  state = 'applied'
  and business_date <= cast(getvariable('as_of') as date)
  and recorded_at <= cast(getvariable('known_at') as timestamp)
