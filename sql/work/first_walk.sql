-- The day from which the portfolio was observed, in one row.
-- grain: first_on
--
-- first_on: business date of the first complete walk; of the first version if there was none; null without either
with
walked as (
  select min(business_date) as first_on
  from mart.run
  where stream = 'deal' and is_complete
)

select min(first_on) as first_on
from (
  select first_on
  from walked
  union all
  -- Versions are read only if there was no walk.
  select version.business_date
  from core.deal_history as version
  cross join (select 1 from walked where first_on is null) as unwalked
)
