-- Every observed change of a deal's field; changes of status are in core.status_change.
-- grain: deal_id, observed_at, field, new_value
-- check: not_null(deal_id, field, observed_at, observed_on)
-- check: accepted(field, property_address, loan_amount, property_value, loan_program)
--
-- deal_id: the service's id
-- field: property_address, loan_amount, property_value or loan_program
-- old_value: as text, amounts with two decimals; null when it was unknown
-- new_value: as text, amounts with two decimals; null when it is unknown
-- observed_at: start of the request that showed it, UTC
-- observed_on: business date of that request
with
fields as (
  select
    deal_id,
    version,
    valid_from,
    business_date,
    {
      'property_address': property_address,
      'loan_amount': cast(loan_amount as varchar),
      'property_value': cast(property_value as varchar),
      'loan_program': loan_program
    } as content,
    lag(content) over (partition by deal_id order by version) as before
  from core.deal_history
),

changed as (
  select
    *,
    unnest([
      {'field': 'property_address', 'old_value': before.property_address, 'new_value': content.property_address},
      {'field': 'loan_amount', 'old_value': before.loan_amount, 'new_value': content.loan_amount},
      {'field': 'property_value', 'old_value': before.property_value, 'new_value': content.property_value},
      {'field': 'loan_program', 'old_value': before.loan_program, 'new_value': content.loan_program}
    ]) as change
  from fields
  where version > 1 and content is distinct from before
)

select
  deal_id,
  change.field as field,
  change.old_value as old_value,
  change.new_value as new_value,
  valid_from as observed_at,
  business_date as observed_on
from changed
where change.old_value is distinct from change.new_value
