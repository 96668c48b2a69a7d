-- Deals present at as_of, as last known: those missing from the last walk are among them, vanished ones are not.
-- grain: deal_id
-- per: deal_id
-- adds_up: loan_amount
-- check: unique(deal_id)
-- check: not_null(deal_id, state, loan_amount, status, status_text, status_class, created_at, created_on)
-- check: not_null(first_seen_at, last_changed_at, status_since, status_since_is_exact, status_since_at_latest, is_missing)
-- check: accepted(status_class, pipeline, funded, ended_funded, ended_unfunded, unclassified)
-- check: references(deal_id, core.deal_history.deal_id)
--
-- deal_id: the service's id
-- property_address: free text, as the service has it; null if it has none
-- state: two-letter code parsed from the address; `unknown` if it does not parse
-- zip: five digits parsed from the end of the address; null if there are none, and if nothing tells them from a house number: no
--   state is found, and no comma stands in what is before them
-- loan_amount: USD
-- property_value: USD; null when unknown
-- ltv: loan-to-value, loan_amount / property_value as a ratio (0.65), half up at 9 decimals; null when the value is
--   unknown or not positive, or the ratio is above 10: a typo, counted as `ltv_above_10` in mart.data_quality.
--   Above 1.5 it counts in no average (`ltv_above_1_5`)
-- loan_program: null when unknown or blank; `(all)` is written `[all]`
-- status: in lower case, without blanks around it, `(new)` as `[new]` and `(gone)` as `[gone]`; another spelling of it is neither a
--   change nor another status
-- status_text: as the service has it
-- status_class: pipeline, funded, ended_funded, ended_unfunded; unclassified when seed.status does not list the status
-- created_at: as the service has it, UTC; midnight if it gave only a date
-- created_on: business date of created_at, or the date the service gave
-- first_seen_at: start of the request that first showed it, UTC
-- last_changed_at: when the current version was first seen, UTC
-- status_since: business date on which the current status was first seen; created_on, if that is earlier, for a deal that never
--   left the first status of the pipeline (seed.status), in which it is created
-- status_since_is_exact: status_since is known to the day. It is not at the first walk, nor if more than a day lies between the
--   last walk that showed another status and the first that showed this one, nor for a deal first seen in a status other than the
--   first. A walk in which an id could not be read is taken to have shown each deal as the walk before; one of a single status
--   (LOANTAPE_STAGE) shows no deal that has left it, only its own page does
-- status_since_at_earliest: the earliest day on which it can have begun: the day after the last business date on which the deal
--   was known to be in another status, or created_on; status_since if that is exact; null when created_on is later than the day
--   on which it was first seen
-- status_since_at_latest: the latest day on which it can have begun: the day the status was first seen; status_since if that is
--   exact. as_of minus this day is the minimum number of days in the status, as_of minus status_since_at_earliest the maximum
-- funded_on: business date on which the current funded spell began, or the date in seed.funded_on if that belongs to this
--   spell, the first that began on or after it, after the previous one had ended; null when not funded, and when the deal was
--   already funded when first seen and no date is given, because it can have been funded long before
-- funded_after: last business date on which it was known not to be funded, or of the last complete walk before it
--   first appeared; null at the first walk or when not funded
-- funded_before: business date by which it was funded: funded_on, or if that is unknown the date on which it was first seen;
--   null when not funded. Deals funded by a day have funded_before up to it; deals funded from a day on have funded_on from it
--   on, or have none
-- funded_on_is_exact: at most one day lies between funded_after and funded_on, or the date is from seed.funded_on; false
--   if funded_on is not known; null when not funded
-- first_funded_on: business date of its first funding, as `originated` of mart.funded_rollforward_deal books it, even if it is
--   no longer funded; null when it was never seen to be funded, and when it was already funded, or past that, before it could be
--   seen
-- value_confirmed_on: business date of the last answer that held property_value, changed or not; a list row counts only if it
--   changed something. Null if none ever did
-- is_missing: absent from the last complete walk, not yet confirmed gone
select
  deal.deal_id,
  deal.property_address,
  standing.state,
  standing.zip,
  deal.loan_amount,
  deal.property_value,
  standing.ltv,
  deal.loan_program,
  deal.status,
  life.status_text,
  deal.status_class,
  life.created_at,
  life.created_on,
  life.first_seen_at,
  deal.valid_from as last_changed_at,
  stage.status_since,
  stage.status_since_is_exact,
  stage.status_since_at_earliest,
  stage.status_since_at_latest,
  funded.funded_on,
  funded.known_before as funded_after,
  funded.funded_before,
  case
    when deal.status_class = 'funded'
      then funded.given_on is not null or coalesce(funded.funded_on - funded.known_before <= 1, false)
  end as funded_on_is_exact,
  origination.business_date as first_funded_on,
  confirmation.confirmed_on as value_confirmed_on,
  life.is_missing
from work.deal_standing as standing
inner join core.deal_history as deal on deal.deal_id = standing.deal_id and deal.version = standing.version
inner join work.deal_life as life on life.deal_id = standing.deal_id
inner join work.stage_spell as stage on stage.deal_id = standing.deal_id and stage.is_current
left join work.funded_spell as funded on funded.deal_id = standing.deal_id and funded.ended_on is null
left join work.funded_movement as origination
  on origination.deal_id = standing.deal_id and origination.term = 'originated'
left join work.value_confirmation as confirmation on confirmation.deal_id = standing.deal_id
where standing.to_day is null
