-- The days on which a deal stood in the portfolio as one of its versions has it: what mart.position_daily counts.
-- grain: deal_id, from_day
-- per: deal_id
--
-- deal_id: the service's id
-- version: of core.deal_history
-- status: as in core.deal_history
-- loan_amount: USD
-- at_first_walk: it stood so at the end of the day of the first walk
-- from_day: business date of the version, at the earliest that of the first walk
-- to_day: the first day it no longer stands so; null if it still does
with
-- A replayed version may precede one of an earlier day, and a version may have ended before the first walk: neither was ever the
-- last word on a day that counts.
spans as (
  select
    deal_id,
    version,
    status,
    loan_amount,
    change,
    business_date <= first_on as at_first_walk,
    greatest(business_date, first_on) as from_day,
    min(business_date) over (
      partition by deal_id order by version rows between 1 following and unbounded following
    ) as to_day
  from core.deal_history
  cross join work.first_walk
)

select
  deal_id,
  version,
  status,
  loan_amount,
  at_first_walk,
  from_day,
  to_day
from spans
where change <> 'vanished' and coalesce(from_day < to_day, true)
