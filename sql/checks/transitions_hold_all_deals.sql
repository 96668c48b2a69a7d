-- mart.status_transition begins each month with the deals of mart.position_daily at the end of the month before, and ends it with
-- those at its own end, to the cent; its roll rates add up to 100 percent, by number and by amount.
-- severity: error
with
began as (
  select
    month,
    from_status as status,
    sum(deals) as deals,
    sum(roll_rate_pct) as rates,
    sum(roll_rate_amount_pct) as amount_rates
  from mart.status_transition
  where from_status <> '(new)'
  group by
    month,
    from_status
),

ended as (
  select
    month,
    to_status as status,
    sum(deals) as deals,
    sum(amount) as amount
  from mart.status_transition
  where to_status <> '(gone)'
  group by
    month,
    to_status
),

days as (
  select
    strftime(day, '%Y-%m') as month,
    lag(max(day)) over (order by month) as day_before,
    min(day) as first_day,
    max(day) as last_day
  from mart.position_daily
  group by month
),

expected as (
  select
    days.month,
    position.status,
    any_value(position.deals) filter (where position.day = coalesce(days.day_before, days.first_day)) as began_deals,
    any_value(position.deals) filter (where position.day = days.last_day) as ended_deals,
    any_value(position.amount) filter (where position.day = days.last_day) as ended_amount
  from days
  inner join mart.position_daily as position
    on position.day in (coalesce(days.day_before, days.first_day), days.last_day)
  group by
    days.month,
    position.status
)

select
  expected.month || ' ' || expected.status as place,
  coalesce(began.deals, 0) as began_deals,
  expected.began_deals as expected_began,
  coalesce(ended.deals, 0) as ended_deals,
  expected.ended_deals as expected_ended,
  coalesce(ended.amount, 0) as ended_amount,
  expected.ended_amount as expected_amount,
  began.rates,
  began.amount_rates
from expected
left join began on began.month = expected.month and began.status = expected.status
left join ended on ended.month = expected.month and ended.status = expected.status
where
  coalesce(began.deals, 0) <> expected.began_deals
  or coalesce(ended.deals, 0) <> expected.ended_deals
  or coalesce(ended.amount, 0) <> expected.ended_amount
  or abs(began.rates - 100) > 0.001
  or abs(began.amount_rates - 100) > 0.001
