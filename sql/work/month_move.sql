-- The months in which a deal came, changed or went: where it stood before and after.
-- grain: deal_id, month
-- per: deal_id
--
-- deal_id: the service's id
-- month: YYYY-MM
-- from_status: its status at the end of the month before, in the first month at the end of the first walk's day; null
--   if it was not in the portfolio
-- from_amount: its amount then, USD; null if it was not in the portfolio
-- to_status: its status at the end of the month; null if it was not in the portfolio
-- amount: its amount at the end of the month, or the last one before it went, USD
with
-- What stood at the first walk has no month: the first month begins with it.
spans as (
  select
    span.deal_id,
    span.status,
    span.loan_amount,
    span.from_day,
    span.to_day,
    case when span.from_day > first_walk.first_on then cast(date_trunc('month', span.from_day) as date) end as month
  from work.position_span as span
  cross join work.first_walk as first_walk
),

followed as (
  select
    *,
    lead(from_day) over in_time is null or lead(month) over in_time is distinct from month as is_last_of_month
  from spans
  window in_time as (partition by deal_id order by from_day)
),

ends as (
  select
    *,
    lag(status) over in_time as status_before,
    lag(loan_amount) over in_time as amount_before,
    lag(to_day) over in_time as until_before,
    lead(month) over in_time as next_month
  from followed
  where is_last_of_month
  window in_time as (partition by deal_id order by from_day)
)

select
  deal_id,
  strftime(month, '%Y-%m') as month,
  case when coalesce(until_before >= month, true) then status_before end as from_status,
  case when coalesce(until_before >= month, true) then amount_before end as from_amount,
  case when coalesce(to_day > last_day(month), true) then status end as to_status,
  loan_amount as amount
from ends
where month is not null
union all
-- The deal went, and no span of it began in that month.
select
  deal_id,
  strftime(to_day, '%Y-%m') as month,
  status as from_status,
  loan_amount as from_amount,
  null as to_status,
  loan_amount as amount
from ends
where coalesce(to_day > last_day(month), to_day is not null) and coalesce(next_month > to_day, true)
