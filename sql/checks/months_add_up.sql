-- The buckets of each dimension of mart.portfolio_monthly add up to what mart.position_daily has as open and funded on that day.
-- severity: error
with
daily as (
  select
    position.day,
    coalesce(sum(position.deals), 0) as open_deals,
    coalesce(sum(position.amount), 0) as open_amount,
    coalesce(sum(position.deals) filter (where status.class = 'funded'), 0) as funded_deals,
    coalesce(sum(position.amount) filter (where status.class = 'funded'), 0) as funded_amount
  from mart.position_daily as position
  left join seed.status as status on status.status = position.status
  where coalesce(status.class not in ('ended_funded', 'ended_unfunded'), true)
  group by position.day
),

expected as (
  select
    daily.*,
    unnest(
      ['status', 'status_class', 'loan_program', 'state', 'size_band', 'ltv_band', 'created_month']
    ) as dimension
  from daily
  where daily.day = last_day(daily.day) or daily.day = cast(getvariable('as_of') as date)
),

found as (
  select
    month_end,
    dimension,
    sum(open_deals) as open_deals,
    sum(open_amount) as open_amount,
    sum(funded_deals) as funded_deals,
    sum(funded_amount) as funded_amount
  from mart.portfolio_monthly
  group by
    month_end,
    dimension
)

select
  coalesce(expected.day, found.month_end) || ' ' || coalesce(expected.dimension, found.dimension) as place,
  coalesce(found.open_deals, 0) as open_deals,
  coalesce(expected.open_deals, 0) as expected_open_deals,
  coalesce(found.open_amount, 0) as open_amount,
  coalesce(expected.open_amount, 0) as expected_open_amount,
  coalesce(found.funded_deals, 0) as funded_deals,
  coalesce(expected.funded_deals, 0) as expected_funded_deals,
  coalesce(found.funded_amount, 0) as funded_amount,
  coalesce(expected.funded_amount, 0) as expected_funded_amount
from expected
full join found on found.month_end = expected.day and found.dimension = expected.dimension
where
  coalesce(found.open_deals, 0) <> coalesce(expected.open_deals, 0)
  or coalesce(found.open_amount, 0) <> coalesce(expected.open_amount, 0)
  or coalesce(found.funded_deals, 0) <> coalesce(expected.funded_deals, 0)
  or coalesce(found.funded_amount, 0) <> coalesce(expected.funded_amount, 0)
order by place
