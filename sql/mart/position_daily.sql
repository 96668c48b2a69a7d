-- The position at the end of every calendar day from the first walk to as_of, by status. Days without a walk carry the
-- day before.
-- grain: day, status
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

-- A replayed version may lie before one of an earlier day; it then never was the last word on any day.
spans as (
  select
    status,
    loan_amount,
    change,
    business_date as from_day,
    min(business_date) over (
      partition by deal_id order by version rows between 1 following and unbounded following
    ) as to_day
  from core.deal_history
),

counted as (
  select
    spans.status,
    spans.loan_amount,
    greatest(spans.from_day, first_walk.first_on) as from_day,
    greatest(spans.to_day, first_walk.first_on) as to_day,
    spans.to_day is not null as is_superseded
  from spans
  cross join work.first_walk as first_walk
  where spans.change <> 'vanished' and coalesce(spans.from_day < spans.to_day, true)
),

-- One step where a version begins and one where it ends: never deals times days.
steps as (
  select
    from_day as day,
    status,
    count(*) as deals,
    sum(loan_amount) as amount
  from counted
  group by
    from_day,
    status
  union all
  select
    to_day as day,
    status,
    -count(*) as deals,
    -sum(loan_amount) as amount
  from counted
  where is_superseded
  group by
    to_day,
    status
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
