-- The month in which each deal was funded is known, and is the one it is booked in. If the last day on which a deal was not funded
-- and the first on which it was lie in different months, seed.funded_on can give the date: unless one follows the other, and the
-- last complete walk of the earlier one began at 21:00 local time or later. A given date of another month corrects no month. Deals
-- funded when observation began are left out.
-- severity: warn
-- next: Name true dates in seeds/funded_on.csv of LOANTAPE_SQL_DIR: docs/analyst-guide.md#read-it-right. A date in another month than
--   booked_in stays warned of, because no month changes: if it matters, move the amount between the months by hand in your books.
with
bookings as (
  select
    deal_id,
    max_by(month, version) as booked_in
  from mart.funded_rollforward_deal
  where term in ('originated', 'refunded')
  group by deal_id
),

last_walks as (
  select
    business_date,
    max(timezone(cast(getvariable('time_zone') as varchar), timezone('UTC', started_at))) as began_at
  from mart.run
  where stream = 'deal' and is_complete
  group by business_date
)

select
  deal.deal_id,
  deal.funded_after,
  deal.funded_before as funded_by,
  bookings.booked_in,
  deal.loan_amount
from core.deal as deal
left join bookings on bookings.deal_id = deal.deal_id
left join last_walks on last_walks.business_date = deal.funded_after
left join seed.funded_on as given on given.deal_id = deal.deal_id and given.funded_on = deal.funded_on
where
  strftime(given.funded_on, '%Y-%m') <> bookings.booked_in
  or (
    given.deal_id is null
    and date_trunc('month', deal.funded_after) <> date_trunc('month', deal.funded_before)
    and (
      not deal.funded_on_is_exact
      or coalesce(last_walks.began_at < deal.funded_after + interval 21 hour, true)
    )
  )
