-- How each deal stood at the ends of months and stands now; on every day if seed.limit has limits. Its state and its
-- loan-to-value are worked out here.
-- grain: deal_id, version
-- per: deal_id
--
-- deal_id: the service's id
-- version: of core.deal_history
-- from_day: as in work.position_span
-- to_day: as in work.position_span; null if it still stands so
-- status: as in core.deal_history
-- status_class: as in core.deal_history
-- is_open: it has not ended
-- loan_program: `unknown` if it is null or blank
-- state: two-letter code parsed from the address; `unknown` if it does not parse
-- zip: five digits parsed from the end of the address; null if there are none
-- created_month: of created_on as last seen, YYYY-MM
-- loan_amount: USD
-- property_value: USD; null when unknown
-- ltv: as in core.deal
-- averaged_ltv: ltv if it counts in averages; null if it is above 1.5
-- size_band: by loan_amount; the lower edge of a band belongs to it
-- ltv_band: by loan-to-value in percent; the upper edge of a band belongs to it; `unknown` if ltv is null
with
spans as (
  select *
  from work.position_span
  where to_day is null or last_day(from_day) < to_day
  union all
  select span.*
  from work.position_span as span
  cross join (select count(*) as limits from seed.limit) as given
  where given.limits > 0 and span.to_day <= last_day(span.from_day)
),

stood as (
  select
    history.*,
    span.from_day,
    span.to_day
  from core.deal_history as history
  inner join spans as span on span.deal_id = history.deal_id and span.version = history.version
),

-- Nearly every address ends like this; the expressions below would take most of this model's time.
plain as (
  select
    stood.*,
    us_state.code as plain_state,
    case when us_state.code is not null then right(stood.property_address, 5) end as plain_zip
  from stood
  left join seed.us_state on us_state.code = regexp_extract(right(stood.property_address, 10), '^, ([A-Z]{2}) \d{5}$', 1)
),

-- All others: upper case, no dots, no country at the end.
addresses as (
  select
    deal_id,
    version,
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
    version,
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
    tails.version,
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

-- In whole billionths, half up: a DOUBLE would move amounts across an edge. The guess is at most one off, and checking it costs
-- an eighth of dividing so many digits.
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
  left join located on located.deal_id = plain.deal_id and located.version = plain.version
),

rated as (
  select
    *,
    cast(loan_amount as decimal(28, 2)) * 100 as scaled_amount,
    case
      when 2 * rest < -value then guess - 1
      when 2 * rest >= value then guess + 1
      else guess
    end as billionths
  from guessed
)

select
  rated.deal_id,
  rated.version,
  rated.from_day,
  rated.to_day,
  rated.status,
  rated.status_class,
  rated.status_class not in ('ended_funded', 'ended_unfunded') as is_open,
  coalesce(rated.loan_program, 'unknown') as loan_program,
  rated.state,
  rated.zip,
  life.created_month,
  rated.loan_amount,
  rated.property_value,
  cast(cast(rated.billionths as decimal(18, 0)) * 0.000000001 as decimal(19, 9)) as ltv,
  case when rated.billionths <= 1500000000 then ltv end as averaged_ltv,
  case
    when rated.loan_amount < 250000 then '<250k'
    when rated.loan_amount < 500000 then '250–500k'
    when rated.loan_amount < 1000000 then '500k–1m'
    when rated.loan_amount < 2500000 then '1–2.5m'
    when rated.loan_amount < 5000000 then '2.5–5m'
    when rated.loan_amount < 10000000 then '5–10m'
    else '≥10m'
  end as size_band,
  -- DECIMAL keeps 65 % exactly 65 %.
  case
    when rated.guess is null then 'unknown'
    when rated.scaled_amount <= rated.value * 50 then '≤50'
    when rated.scaled_amount <= rated.value * 60 then '50–60'
    when rated.scaled_amount <= rated.value * 65 then '60–65'
    when rated.scaled_amount <= rated.value * 70 then '65–70'
    when rated.scaled_amount <= rated.value * 75 then '70–75'
    when rated.scaled_amount <= rated.value * 80 then '75–80'
    when rated.scaled_amount <= rated.value * 85 then '80–85'
    when rated.scaled_amount <= rated.value * 90 then '85–90'
    else '>90'
  end as ltv_band
from rated
inner join work.deal_life as life on life.deal_id = rated.deal_id
