-- The position at the end of every calendar day from the first walk to as_of, by status. Days without a walk repeat the day
-- before.
-- grain: day, status
-- adds_up: deals, amount
-- check: unique(day, status)
-- check: not_null(day, status, deals, amount, observed)
--
-- day: business date
-- status: every status ever seen, on every day
-- deals: deals in it, missing ones included
-- amount: sum of loan_amount, USD
-- observed: a complete walk counts for this day
with
walked as (
  select distinct business_date as day
  from mart.run
  where stream = 'deal' and is_complete
),

-- Few rows, however many versions there are.
spans as (
  select
    from_day,
    to_day,
    status,
    count(*) as deals,
    sum(loan_amount) as amount
  from work.position_span
  group by
    from_day,
    to_day,
    status
),

-- One step where a version begins and one where it ends: never deals times days.
steps as (
  select
    from_day as day,
    status,
    deals,
    amount
  from spans
  union all
  select
    to_day as day,
    status,
    -deals,
    -amount
  from spans
),

daily as (
  select
    day,
    status,
    sum(deals) as deals,
    sum(amount) as amount
  from steps
  group by
    day,
    status
),

days as (
  select cast(unnest(generate_series(first_on, cast(getvariable('as_of') as date), interval 1 day)) as date) as day
  from work.first_walk
),

statuses as (
  select distinct status
  from core.deal_history
)

select
  days.day,
  statuses.status,
  cast(coalesce(sum(daily.deals) over so_far, 0) as bigint) as deals,
  cast(coalesce(sum(daily.amount) over so_far, 0) as decimal(38, 2)) as amount,
  walked.day is not null as observed
from days
cross join statuses
left join daily on daily.day = days.day and daily.status = statuses.status
left join walked on walked.day = days.day
window so_far as (partition by statuses.status order by days.day)
