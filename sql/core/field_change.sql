-- Every observed change of a deal's field; changes of status are in core.status_change.
-- grain: deal_id, observed_at, field, new_value
-- per: deal_id
-- check: not_null(deal_id, field, observed_at, observed_on)
-- check: accepted(field, property_address, loan_amount, property_value, loan_program, created_at)
--
-- deal_id: the service's id
-- field: property_address, loan_amount, property_value or loan_program; or created_at, which moves a deal to the cohort of another
--   month in all months, and alone makes no version of core.deal_history
-- old_value: as text, amounts with two decimals, created_at in UTC; null when it was unknown
-- new_value: as text, amounts with two decimals, created_at in UTC; null when it is unknown
-- observed_at: start of the request that showed it, UTC
-- observed_on: business date of that request
with
changed as (
  select
    deal_id,
    'property_address' as field,
    before.property_address as old_value,
    property_address as new_value,
    observed_at,
    business_date
  from work.deal_observation
  where before is not null and before.property_address is distinct from property_address
  union all
  select
    deal_id,
    'loan_amount' as field,
    cast(before.loan_amount as varchar) as old_value,
    cast(loan_amount as varchar) as new_value,
    observed_at,
    business_date
  from work.deal_observation
  where before is not null and before.loan_amount is distinct from loan_amount
  union all
  select
    deal_id,
    'property_value' as field,
    cast(before.property_value as varchar) as old_value,
    cast(property_value as varchar) as new_value,
    observed_at,
    business_date
  from work.deal_observation
  where before is not null and before.property_value is distinct from property_value
  union all
  select
    deal_id,
    'loan_program' as field,
    before.loan_program as old_value,
    loan_program as new_value,
    observed_at,
    business_date
  from work.deal_observation
  where before is not null and before.loan_program is distinct from loan_program
  union all
  select
    deal_id,
    'created_at' as field,
    cast(created_at_before as varchar) as old_value,
    cast(created_at as varchar) as new_value,
    observed_at,
    business_date
  from work.deal_observation
  where created_at_before <> created_at
)

select
  deal_id,
  field,
  old_value,
  new_value,
  observed_at,
  business_date as observed_on
from changed
