-- Every stored observation of a deal that counts at as_of and known_at, in business time, with fields left out carried forward.
-- grain: deal_id, position
-- per: deal_id
--
-- deal_id: the service's id
-- position: rises with each observation of the deal, in the order of (observed_at, seq)
-- kind: seen, missing or vanished; the last two change no content
-- change: created, updated, vanished or restored, against what was known before; null when it changes nothing
-- observed_at: start of the request that showed it, UTC
-- business_date: the day it counts for
-- recorded_at: when it was stored, UTC
-- property_address: as last seen
-- loan_amount: as last seen, USD
-- property_value: last one present, USD; an explicit null stays null
-- loan_program: last one present; an explicit null stays null, a blank text is one. `(all)` is a word of our tables: a program
--   of this name becomes `[all]`
-- program_was_shown: whether an earlier sighting showed a program, or that there is none
-- status: as last seen, in the form statuses are compared in: without blanks around it, in lower case. `(new)` and `(gone)` are
--   words of our tables: statuses of these names become `[new]` and `[gone]`
-- status_text: as last seen and as sent; another spelling of the same status is no change
-- created_at: as last seen, UTC
-- created_at_precision: as last seen: instant, or date if the service gave only that
-- created_at_before: created_at at the sighting before; null before the first. Another one is no change of content
-- before: what was known of its fields before, if change is updated or restored; else null
-- status_before: status at the sighting before; null before the first
-- sighted_before: observed_at of the sighting before
-- sighted_before_seq: its seq
-- sighted_before_on: its business date
-- next_observed_at: observed_at of the observation that follows; null when none does
with
-- What every sighting shows is one struct. A struct of one field tells a null that was seen from a field that was not shown.
known as (
  select
    deal_id,
    seq,
    kind,
    observed_at,
    business_date,
    recorded_at,
    case when kind <> 'missing' then kind = 'seen' end as presence,
    case
      when kind = 'seen' then {
        'at': observed_at,
        'seq': seq,
        'on': business_date,
        'address': property_address,
        'amount': loan_amount,
        'status': case canonical when '(new)' then '[new]' when '(gone)' then '[gone]' else canonical end,
        'status_text': status,
        'created_at': created_at,
        'precision': created_at_precision
      }
    end as sighting,
    case when kind = 'seen' and property_value_present then {'it': property_value} end as value,
    case
      when kind = 'seen' and loan_program_present then {
        'it': case when loan_program = '(all)' then '[all]' when trim(loan_program, e' \t\n\r') <> '' then loan_program end
      }
    end as program
  from (
    select
      *,
      lower(regexp_replace(status, '^[\s\x0b\p{Z}\x{feff}]+|[\s\x0b\p{Z}\x{feff}]+$', '', 'g')) as canonical
    from raw.deal_version
  ) as version
  where
    business_date <= cast(getvariable('as_of') as date)
    and recorded_at <= cast(getvariable('known_at') as timestamp)
),

-- One pass over the versions gives each what was known before it.
preceded as (
  select
    *,
    row_number() over in_time as position,
    lead(observed_at) over in_time as next_observed_at,
    lag(presence ignore nulls) over in_time as was_present,
    lag(sighting ignore nulls) over in_time as sighting_before,
    lag(value ignore nulls) over in_time as value_before,
    lag(program ignore nulls) over in_time as program_before
  from known
  window in_time as (partition by deal_id order by observed_at, seq)
),

carried as (
  select * replace (
    coalesce(sighting, sighting_before) as sighting,
    coalesce(value, value_before) as value,
    coalesce(program, program_before) as program
  ),
  coalesce(presence, was_present) as is_present
  from preceded
)

select
  deal_id,
  position,
  kind,
  case
    when sighting_before is null and kind = 'seen' then 'created'
    when was_present and not is_present then 'vanished'
    when is_present and not was_present then 'restored'
    when
      sighting.amount is distinct from sighting_before.amount
      or sighting.status is distinct from sighting_before.status
      or sighting.address is distinct from sighting_before.address
      or value.it is distinct from value_before.it
      or program.it is distinct from program_before.it
      then 'updated'
  end as change,
  observed_at,
  next_observed_at,
  business_date,
  recorded_at,
  sighting.address as property_address,
  sighting.amount as loan_amount,
  value.it as property_value,
  program.it as loan_program,
  program_before is not null as program_was_shown,
  sighting.status as status,
  sighting.status_text as status_text,
  sighting.created_at as created_at,
  sighting.precision as created_at_precision,
  sighting_before.created_at as created_at_before,
  case when change in ('updated', 'restored') then {
    'property_address': sighting_before.address,
    'loan_amount': sighting_before.amount,
    'property_value': value_before.it,
    'loan_program': program_before.it
  } end as before,
  sighting_before.status as status_before,
  sighting_before.at as sighted_before,
  sighting_before.seq as sighted_before_seq,
  sighting_before.on as sighted_before_on
from carried
