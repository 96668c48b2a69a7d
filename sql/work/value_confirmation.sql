-- When the source last said what a deal's property is worth, within as_of and known_at, even if nothing changed.
-- grain: deal_id
-- per: deal_id
--
-- deal_id: the service's id
-- confirmed_on: business date of the last answer that held property_value
with
answers as (
  select
    deal_id,
    business_date
  from raw.deal_version
  where
    business_date <= cast(getvariable('as_of') as date)
    and recorded_at <= cast(getvariable('known_at') as timestamp)
    and kind = 'seen'
    and property_value_present
  union all
  select
    deal_id,
    business_date
  from raw.deal_confirmation
  where
    business_date <= cast(getvariable('as_of') as date)
    and recorded_at <= cast(getvariable('known_at') as timestamp)
)

select
  deal_id,
  max(business_date) as confirmed_on
from answers
group by deal_id
