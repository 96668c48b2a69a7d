-- Every stored observation of a deal that as_of and known_at let count, in business time, with what was left out
-- carried on. Built for other models and not kept.
-- grain: deal_id, position
--
-- deal_id: the service's id
-- position: 1 for the deal's first observation, in the order of (observed_at, seq)
-- kind: seen, missing or vanished; the last two change no content
-- observed_at: start of the request that showed it, UTC
-- business_date: the day it counts for
-- recorded_at: when it was stored, UTC
-- property_address: as last seen
-- loan_amount: as last seen, USD
-- property_value: last one present, USD; an explicit null stays null
-- loan_program: last one present; an explicit null stays null
-- status: as last seen
-- created_at: as last seen, UTC
with
known as (
  select *
  from raw.deal_version
  where
    business_date <= cast(getvariable('as_of') as date)
    and recorded_at <= cast(getvariable('known_at') as timestamp)
),

-- A struct holds a present null apart from an absent field.
carried as (
  select
    deal_id,
    seq,
    kind,
    observed_at,
    business_date,
    recorded_at,
    last_value(
      case when kind = 'seen' then {
        'property_address': property_address,
        'loan_amount': loan_amount,
        'status': status,
        'created_at': created_at
      } end ignore nulls
    ) over so_far as seen,
    last_value(case when kind = 'seen' and property_value_present then {'it': property_value} end ignore nulls)
      over so_far as property_value,
    last_value(case when kind = 'seen' and loan_program_present then {'it': loan_program} end ignore nulls)
      over so_far as loan_program
  from known
  window so_far as (partition by deal_id order by observed_at, seq)
)

select
  deal_id,
  row_number() over (partition by deal_id order by observed_at, seq) as position,
  kind,
  observed_at,
  business_date,
  recorded_at,
  seen.property_address as property_address,
  seen.loan_amount as loan_amount,
  property_value.it as property_value,
  loan_program.it as loan_program,
  seen.status as status,
  seen.created_at as created_at
from carried
where seen is not null
