-- What became of the deals of each status from month to month. Every deal that stood in the portfolio at the end of any day of a
-- month is in exactly one of its rows. Source of roll rates: Comptroller of the Currency, Comptroller's Handbook, Retail Lending
-- Examination Procedures, on roll rate models; here by status, because the source has no days past due.
-- grain: month, from_status, to_status
-- adds_up: deals, amount
-- check: unique(month, from_status, to_status)
-- check: not_null(month, from_status, to_status, deals, amount, is_partial)
-- check: between(roll_rate_pct, 0, 100)
-- check: between(roll_rate_amount_pct, 0, 100)
--
-- month: YYYY-MM; every month from the first walk to as_of
-- from_status: status at the end of the month before, in the first month at the end of the first walk's day; `(new)` for a
--   deal that was not in the portfolio then: first seen in the month, or back after it had vanished
-- to_status: status at the end of the month, in the last one at as_of; `(gone)` for a deal that has vanished
-- deals: deals that went this way, or stayed
-- amount: their loan_amount at the end, for gone deals the last known one, USD
-- roll_rate_pct: roll rate by number: share of the deals that began the month in from_status, in percent; null if from_status
--   is `(new)`
-- roll_rate_amount_pct: roll rate by amount: share of the amount these deals had when the month began, in percent; null if
--   from_status is `(new)`, or that amount is 0
-- is_partial: the month was not fully observed: it is that of the first walk, or as_of is before its last day
with
-- The first month begins with what the first walk found.
starts as (
  select
    month,
    greatest(from_day - 1, min(from_day) over ()) as day
  from work.month
),

began as (
  select
    starts.month,
    position.status,
    position.deals,
    position.amount
  from starts
  inner join mart.position_daily as position on position.day = starts.day
),

months as (
  select
    strftime(min(from_day), '%Y-%m') as first_month,
    coalesce(max(month) filter (where to_day = last_day(to_day)), '') as last_whole_month
  from work.month
),

-- Deals that did not move are what remains of those that began the month.
ways as (
  select
    month,
    status as from_status,
    status as to_status,
    deals,
    amount as from_amount,
    amount
  from began
  union all
  select
    month,
    from_status,
    from_status as to_status,
    -count(*) as deals,
    -sum(from_amount) as from_amount,
    -sum(from_amount) as amount
  from work.month_move
  where from_status is not null
  group by
    month,
    from_status
  union all
  select
    month,
    coalesce(from_status, '(new)') as from_status,
    coalesce(to_status, '(gone)') as to_status,
    count(*) as deals,
    coalesce(sum(from_amount), 0) as from_amount,
    sum(amount) as amount
  from work.month_move
  group by
    month,
    from_status,
    to_status
),

summed as (
  select
    month,
    from_status,
    to_status,
    sum(deals) as deals,
    sum(from_amount) as from_amount,
    sum(amount) as amount
  from ways
  group by
    month,
    from_status,
    to_status
)

select
  summed.month,
  summed.from_status,
  summed.to_status,
  cast(summed.deals as bigint) as deals,
  cast(summed.amount as decimal(38, 2)) as amount,
  round(summed.deals / began.deals * 100, 6) as roll_rate_pct,
  case
    when began.deals is not null then round(summed.from_amount / nullif(began.amount, 0) * 100, 6)
  end as roll_rate_amount_pct,
  summed.month = months.first_month or summed.month > months.last_whole_month as is_partial
from summed
cross join months
left join began on began.month = summed.month and began.status = summed.from_status
where summed.deals > 0
