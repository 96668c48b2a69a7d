-- Every deal ever seen, vanished ones included: when it came, what it is now, and how far it got.
-- grain: deal_id
-- per: deal_id
--
-- deal_id: the service's id
-- status_text: as last seen and as sent
-- created_at: as last seen, UTC
-- created_on: business date of created_at, or the date the service gave, as last seen
-- created_month: of created_on, YYYY-MM
-- loan_program: as last seen; null when unknown
-- loan_amount: as last seen, USD
-- first_seen_at: start of the request that first showed it, UTC
-- first_amount: loan_amount when it was first seen, USD
-- is_missing: it was absent when last looked for, and has not vanished; an unreadable record of it, later than that, is none
-- reached_order: highest sort_order of seed.status it was ever seen at, of the classes pipeline, funded and
--   ended_funded; null when it never was in one of these
-- first_walk_on: the day from which its lender's portfolio was observed
-- reached_funded_on: business date on which it was first seen in class funded or ended_funded, which it can only have
--   reached through funded; null when never
-- fell_out_on: business date since which it has been out without having been funded: in a status of class ended_unfunded, or
--   vanished; null when it is not out, was ever funded, or was already out at the first walk
-- fell_out_amount: loan_amount before it fell out, USD; null when fell_out_on is
with
reached as (
  select
    spell.deal_id,
    max(status.sort_order) filter (where status.class in ('pipeline', 'funded', 'ended_funded')) as reached_order,
    min(spell.began_on) filter (where status.class in ('funded', 'ended_funded')) as reached_funded_on
  from work.status_spell as spell
  left join seed.status on status.status = spell.status
  group by spell.deal_id
),

unfunded as (
  select
    history.deal_id,
    max(history.version) filter (
      where history.change <> 'vanished' and history.status_class in ('pipeline', 'unclassified')
    ) as last_in
  from core.deal_history as history
  inner join reached on reached.deal_id = history.deal_id
  where reached.reached_funded_on is null
  group by history.deal_id
),

-- A deal that was out when first seen fell out then, unless that was at the first walk, or it had been in quarantine since.
fallen as (
  select
    unfunded.deal_id,
    greatest(
      min(history.business_date) filter (where history.version > coalesce(unfunded.last_in, 0)),
      first_walk.first_on
    ) as fell_out_on,
    max(history.loan_amount) filter (where history.version = coalesce(unfunded.last_in, 1)) as fell_out_amount
  from unfunded
  cross join work.first_walk as first_walk
  inner join core.deal_history as history on history.deal_id = unfunded.deal_id
  inner join work.status_spell as spell on spell.deal_id = unfunded.deal_id and spell.spell = 1
  where unfunded.last_in is not null or spell.known_before is not null
  group by
    unfunded.deal_id,
    first_walk.first_on
  having max(history.version) > coalesce(any_value(unfunded.last_in), 0)
),

firsts as (
  select
    deal_id,
    valid_from as first_seen_at,
    loan_amount as first_amount
  from core.deal_history
  where version = 1
),

latest as (
  select
    deal_id,
    kind = 'missing'
    and not exists (
      select 1
      from work.quarantined
      where quarantined.deal_id = latest.deal_id and quarantined.observed_at > latest.observed_at
    ) as is_missing,
    status_text,
    created_at,
    created_at_precision
  from work.deal_observation as latest
  where next_observed_at is null
)

-- The day of an instant begins at the cut-off. Most tools refuse dates before the year 1 and after 9999.
select
  history.deal_id,
  latest.status_text,
  latest.created_at,
  case
    when latest.created_at_precision = 'date' then cast(latest.created_at as date)
    else
      least(
        greatest(
          cast(
            timezone(cast(getvariable('time_zone') as varchar), timezone('UTC', latest.created_at))
            - cast(getvariable('day_cutoff') as interval) as date
          ),
          date '0001-01-01'
        ),
        date '9999-12-31'
      )
  end as created_on,
  strftime(created_on, '%Y-%m') as created_month,
  history.loan_program,
  history.loan_amount,
  firsts.first_seen_at,
  firsts.first_amount,
  latest.is_missing,
  reached.reached_order,
  first_walk.first_on as first_walk_on,
  reached.reached_funded_on,
  fallen.fell_out_on,
  fallen.fell_out_amount
from core.deal_history as history
cross join work.first_walk as first_walk
inner join latest on latest.deal_id = history.deal_id
inner join reached on reached.deal_id = history.deal_id
inner join firsts on firsts.deal_id = history.deal_id
left join fallen on fallen.deal_id = history.deal_id
where history.valid_to is null
