-- Deals present at as_of, as last known: those missing from the last walk are among them, vanished ones are not.
-- grain: deal_id
-- per: deal_id
-- check: unique(deal_id)
-- check: not_null(deal_id, state, loan_amount, status, status_text, status_class, created_at, created_on)
-- check: not_null(first_seen_at, last_changed_at, status_since, is_missing)
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
--   unknown or not positive, or the ratio is above 10: a typo, counted as `ltv_above_10` in mart.data_quality
-- loan_program: null when unknown or blank
-- status: in lower case, without blanks around it; another spelling of it is neither a change nor another status
-- status_text: as the service has it
-- status_class: pipeline, funded, ended_funded, ended_unfunded; unclassified when seed.status does not list the status
-- created_at: as the service has it, UTC; midnight where it gave only a date
-- created_on: business date of created_at, or the date the service gave
-- first_seen_at: start of the request that first showed it, UTC
-- last_changed_at: when the current version was first seen, UTC
-- status_since: business date on which the current status spell began; created_on for a draft that never changed
-- funded_on: business date on which the current funded spell began, or the date in seed.funded_on where that belongs to
--   this spell, which is the first that began on or after it and after the one before had ended; null when not funded
-- funded_after: last business date on which it was known not to be funded, or of the last complete walk before it
--   first appeared; null at the first walk or when not funded
-- funded_on_is_exact: at most one day lies between funded_after and funded_on, or the date is from seed.funded_on; null
--   when not funded
-- value_confirmed_on: business date of the last answer that held property_value, changed or not; of a list row counts
--   only one that changed something. Null when none ever did
-- is_missing: absent from the last complete walk, not yet confirmed gone
with
present as (
  select *
  from core.deal_history
  where valid_to is null and change <> 'vanished'
),

-- Nearly every address ends like this; the expressions below would take most of this model's time.
plain as (
  select
    present.*,
    us_state.code as plain_state,
    case when us_state.code is not null then right(present.property_address, 5) end as plain_zip
  from present
  left join seed.us_state on us_state.code = regexp_extract(right(present.property_address, 10), '^, ([A-Z]{2}) \d{5}$', 1)
),

-- All others: upper case, no dots, no country at the end.
addresses as (
  select
    deal_id,
    regexp_replace(
      trim(regexp_replace(replace(upper(property_address), '.', ''), '\s+', ' ', 'g'), ' ,'),
      '[ ,]+(USA|US|UNITED STATES|UNITED STATES OF AMERICA)$',
      ''
    ) as address
  from plain
  where plain_state is null
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
    coalesce(by_three.code, by_two.code, by_one.code, by_code.code) as state,
    case when state is not null or contains(tails.rest, ',') then tails.zip end as zip
  from tails
  left join seed.us_state as by_three on upper(by_three.name) = array_to_string(tails.words[-3:], ' ')
  left join seed.us_state as by_two on upper(by_two.name) = array_to_string(tails.words[-2:], ' ')
  left join seed.us_state as by_one on upper(by_one.name) = tails.words[-1]
  left join seed.us_state as by_code
    on by_code.code = case
      when tails.code_follows_comma then tails.code
      when tails.zip_follows_directly and (tails.code <> 'CT' or tails.zip like '06%') then tails.code
    end
),

-- In whole billionths, half up: a DOUBLE would move amounts across an edge. One is at most one off, and to see whether it is
-- costs an eighth of a division of so many digits.
guessed as (
  select
    plain.*,
    coalesce(plain.plain_state, located.state, 'unknown') as state,
    coalesce(plain.plain_zip, located.zip) as zip,
    case when property_value > 0 then cast(property_value as decimal(27, 2)) end as value,
    case
      when loan_amount <= 10 * value
        then cast(round(cast(loan_amount as double) / cast(value as double) * 1e9) as decimal(11, 0))
    end as guess,
    cast(cast(loan_amount as decimal(28, 2)) * 1000000000 - value * guess as decimal(20, 2)) as rest
  from plain
  left join located on located.deal_id = plain.deal_id
),

rated as (
  select
    *,
    case
      when 2 * rest < -value then guess - 1
      when 2 * rest >= value then guess + 1
      else guess
    end as billionths
  from guessed
),

current_spell as (
  select *
  from work.status_spell
  where is_current
)

select
  deal.deal_id,
  deal.property_address,
  deal.state,
  deal.zip,
  deal.loan_amount,
  deal.property_value,
  cast(cast(deal.billionths as decimal(18, 0)) * 0.000000001 as decimal(19, 9)) as ltv,
  deal.loan_program,
  deal.status,
  life.status_text,
  deal.status_class,
  life.created_at,
  life.created_on,
  spell.first_seen_at,
  deal.valid_from as last_changed_at,
  case
    when deal.status = 'draft' and spell.spell = 1 then life.created_on
    else spell.began_on
  end as status_since,
  funded.funded_on,
  funded.known_before as funded_after,
  case
    when deal.status_class = 'funded'
      then funded.given_on is not null or coalesce(funded.began_on - funded.known_before <= 1, false)
  end as funded_on_is_exact,
  confirmation.confirmed_on as value_confirmed_on,
  life.is_missing
from rated as deal
inner join work.deal_life as life on life.deal_id = deal.deal_id
inner join current_spell as spell on spell.deal_id = deal.deal_id
left join work.funded_spell as funded on funded.deal_id = deal.deal_id and funded.ended_on is null
left join work.value_confirmation as confirmation on confirmation.deal_id = deal.deal_id
