-- Deals present at as_of, as last known: those missing from the last walk are among them, vanished ones are not.
-- grain: deal_id
-- check: unique(deal_id)
-- check: not_null(deal_id, state, loan_amount, status, status_class, created_at, created_on, first_seen_at)
-- check: not_null(last_changed_at, status_since, is_missing)
-- check: accepted(status_class, pipeline, funded, ended_funded, ended_unfunded, unclassified)
-- check: references(deal_id, core.deal_history.deal_id)
--
-- deal_id: the service's id
-- property_address: free text, as the service has it
-- state: two-letter code parsed from the address; `unknown` where it does not parse
-- zip: five digits parsed from the end of the address; null where there are none
-- loan_amount: USD
-- property_value: USD; null when unknown
-- ltv: loan-to-value, loan_amount / property_value as a ratio (0.65), half up at 9 decimals; null when the value is
--   unknown, not positive, or so small that the ratio would be 1000 or more
-- loan_program: null when unknown
-- status: as the service has it
-- status_class: pipeline, funded, ended_funded, ended_unfunded; unclassified when seed.status does not list the status
-- created_at: as the service has it, UTC; midnight where it gave only a date
-- created_on: the UTC date of created_at, or the date the service gave
-- first_seen_at: start of the request that first showed it, UTC
-- last_changed_at: when the current version was first seen, UTC
-- status_since: business date on which the current status spell began; created_on for a draft that never changed
-- funded_on: business date on which the current funded spell began, or the date in seed.funded_on; null when not funded
-- funded_after: last business date on which it was known not to be funded, or of the last complete walk before it
--   first appeared; null at the first walk or when not funded
-- funded_on_is_exact: at most one day lies between funded_after and funded_on, or the date is from seed.funded_on;
--   null when not funded
-- is_missing: absent from the last complete walk, not yet confirmed gone
with
present as (
  select *
  from core.deal_history
  where valid_to is null and change <> 'vanished'
),

sightings as (
  select
    deal_id,
    min(observed_at) as first_seen_at,
    arg_max(kind, position) as kind,
    arg_max(created_at, position) as created_at
  from work.deal_observation
  group by deal_id
),

spells as (
  select
    *,
    lag(status_class) over (partition by deal_id order by spell) as class_before
  from work.status_spell
),

current_spell as (
  select *
  from spells
  qualify spell = max(spell) over (partition by deal_id)
),

funded_spell as (
  select *
  from spells
  where status_class = 'funded' and class_before is distinct from 'funded'
  qualify spell = max(spell) over (partition by deal_id)
),

-- Upper case, no dots, no country at the end.
addresses as (
  select
    deal_id,
    regexp_replace(
      trim(regexp_replace(replace(upper(property_address), '.', ''), '\s+', ' ', 'g'), ' ,'),
      '[ ,]+(USA|US|UNITED STATES|UNITED STATES OF AMERICA)$',
      ''
    ) as address
  from present
),

zipped as (
  select
    deal_id,
    nullif(regexp_extract(address, '(?:^|[ ,])(\d{5})(?:-\d{4})?$', 1), '') as zip,
    regexp_matches(address, '[^ ,] \d{5}(-\d{4})?$') as zip_follows_directly,
    trim(regexp_replace(address, '(^|[ ,]+)\d{5}(-\d{4})?$', ''), ' ,') as rest
  from addresses
),

tails as (
  select
    *,
    regexp_extract(rest, '(^|[ ,])([A-Z]{2})$', 2) as code,
    regexp_matches(rest, ',\s*[A-Z]{2}$') as code_follows_comma,
    string_split(trim(regexp_extract(rest, '[^,]*$')), ' ') as words
  from zipped
),

-- The longest name wins: West Virginia before Virginia. Without a comma before it a code counts only in front of a
-- ZIP, and CT, which also abbreviates Court, only in front of one of Connecticut's.
located as (
  select
    tails.deal_id,
    tails.zip,
    tails.rest,
    coalesce(by_three.code, by_two.code, by_one.code, by_code.code) as state
  from tails
  left join seed.us_state as by_three on upper(by_three.name) = array_to_string(tails.words[-3:], ' ')
  left join seed.us_state as by_two on upper(by_two.name) = array_to_string(tails.words[-2:], ' ')
  left join seed.us_state as by_one on upper(by_one.name) = tails.words[-1]
  left join seed.us_state as by_code
    on
      by_code.code = tails.code
      and (
        tails.code_follows_comma
        or (tails.zip_follows_directly and (tails.code <> 'CT' or tails.zip like '06%'))
      )
),

-- In whole billionths, half up: a DOUBLE would move amounts across an edge.
ratios as (
  select
    deal_id,
    cast(cast(loan_amount as decimal(28, 2)) * 100 as hugeint) as amount_cents,
    cast(cast(property_value as decimal(28, 2)) * 100 as hugeint) as value_cents,
    (2 * amount_cents * 1000000000 + value_cents) // (2 * value_cents) as billionths
  from present
  where property_value > 0 and billionths < 1000000000000
)

select
  present.deal_id,
  present.property_address,
  coalesce(located.state, 'unknown') as state,
  case when located.state is not null or contains(located.rest, ',') then located.zip end as zip,
  present.loan_amount,
  present.property_value,
  cast(cast(ratios.billionths as decimal(28, 0)) * 0.000000001 as decimal(12, 9)) as ltv,
  present.loan_program,
  present.status,
  present.status_class,
  sightings.created_at,
  cast(sightings.created_at as date) as created_on,
  sightings.first_seen_at,
  present.valid_from as last_changed_at,
  case
    when present.status = 'draft' and current_spell.spell = 1 then cast(sightings.created_at as date)
    else current_spell.began_on
  end as status_since,
  case
    when present.status_class = 'funded' then coalesce(funded_on.funded_on, funded_spell.began_on)
  end as funded_on,
  case when present.status_class = 'funded' then funded_spell.known_before end as funded_after,
  case
    when present.status_class = 'funded'
      then
        funded_on.funded_on is not null
        or coalesce(funded_spell.began_on - funded_spell.known_before <= 1, false)
  end as funded_on_is_exact,
  sightings.kind = 'missing' as is_missing
from present
inner join sightings on sightings.deal_id = present.deal_id
inner join current_spell on current_spell.deal_id = present.deal_id
inner join located on located.deal_id = present.deal_id
left join funded_spell on funded_spell.deal_id = present.deal_id
left join ratios on ratios.deal_id = present.deal_id
left join seed.funded_on on funded_on.deal_id = present.deal_id
