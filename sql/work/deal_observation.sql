-- Every stored observation of a deal that as_of and known_at let count, in business time, with what was left out
-- carried on. Built for other models and not kept.
-- grain: deal_id, position
--
-- deal_id: the service's id
-- position: rises with each observation of the deal, in the order of (observed_at, seq)
-- is_latest: nothing known of the deal follows it
-- kind: seen, missing or vanished; the last two change no content
-- change: created, updated, vanished or restored, against what was known before; null when it changes nothing
-- observed_at: start of the request that showed it, UTC
-- business_date: the day it counts for
-- recorded_at: when it was stored, UTC
-- property_address: as last seen
-- loan_amount: as last seen, USD
-- property_value: last one present, USD; an explicit null stays null
-- loan_program: last one present; an explicit null stays null
-- status: as last seen
-- created_at: as last seen, UTC
-- before: what was known of its fields before, where change is updated or restored; else null
with
-- A struct holds a present null apart from an absent field.
known as (
  select
    deal_id,
    seq,
    kind,
    observed_at,
    business_date,
    recorded_at,
    case when kind <> 'missing' then kind = 'seen' end as presence,
    case when kind = 'seen' then {
      'property_address': property_address,
      'loan_amount': loan_amount,
      'status': status,
      'created_at': created_at
    } end as shown,
    case when kind = 'seen' and property_value_present then {'it': property_value} end as shown_value,
    case when kind = 'seen' and loan_program_present then {'it': loan_program} end as shown_program
  from raw.deal_version
  where
    business_date <= cast(getvariable('as_of') as date)
    and recorded_at <= cast(getvariable('known_at') as timestamp)
),

-- One pass over the versions gives each what was known with it and what was known before it.
carried as (
  select
    deal_id,
    kind,
    observed_at,
    business_date,
    recorded_at,
    row_number() over so_far as position,
    lead(seq) over so_far is null as is_latest,
    last_value(presence ignore nulls) over so_far as is_present,
    last_value(presence ignore nulls) over earlier as was_present,
    last_value(shown ignore nulls) over so_far as seen,
    last_value(shown ignore nulls) over earlier as seen_before,
    last_value(shown_value ignore nulls) over so_far as value,
    last_value(shown_value ignore nulls) over earlier as value_before,
    last_value(shown_program ignore nulls) over so_far as program,
    last_value(shown_program ignore nulls) over earlier as program_before
  from known
  window
    so_far as (
      partition by deal_id order by observed_at, seq rows between unbounded preceding and current row
    ),
    earlier as (
      partition by deal_id order by observed_at, seq rows between unbounded preceding and 1 preceding
    )
)

select
  deal_id,
  position,
  is_latest,
  kind,
  case
    when seen_before is null then 'created'
    when was_present and not is_present then 'vanished'
    when is_present and not was_present then 'restored'
    when
      seen.loan_amount is distinct from seen_before.loan_amount
      or seen.status is distinct from seen_before.status
      or seen.property_address is distinct from seen_before.property_address
      or value.it is distinct from value_before.it
      or program.it is distinct from program_before.it
      then 'updated'
  end as change,
  observed_at,
  business_date,
  recorded_at,
  seen.property_address as property_address,
  seen.loan_amount as loan_amount,
  value.it as property_value,
  program.it as loan_program,
  seen.status as status,
  seen.created_at as created_at,
  case when change in ('updated', 'restored') then {
    'property_address': seen_before.property_address,
    'loan_amount': seen_before.loan_amount,
    'property_value': value_before.it,
    'loan_program': program_before.it
  } end as before
from carried
where seen is not null
