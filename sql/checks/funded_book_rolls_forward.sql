-- The funded book rolls forward without a gap: every month opens as the one before closed, its terms are the sums of
-- mart.funded_rollforward_deal, and the last closing is the funded amount of mart.portfolio_summary.
-- severity: error
with
months as (
  select
    *,
    lag(closing) over (order by month) as closing_before,
    row_number() over (order by month desc) = 1 as is_last
  from mart.funded_rollforward
),

booked as (
  unpivot (
    select * exclude (closing, difference, closing_before, is_last) replace (
      case when closing_before is null then opening else 0 end as opening
    )
    from months
  ) on columns(* exclude (month)) into name term value amount
),

moved as (
  select
    month,
    term,
    sum(amount) as amount
  from mart.funded_rollforward_deal
  group by
    month,
    term
)

select
  month || ' opening' as place,
  opening as amount,
  closing_before as expected
from months
where opening <> closing_before
union all
select
  months.month || ' closing' as place,
  months.closing as amount,
  summary.funded_amount as expected
from months
cross join mart.portfolio_summary as summary
where months.is_last and months.closing <> summary.funded_amount
union all
select
  coalesce(booked.month, moved.month) || ' ' || coalesce(booked.term, moved.term) as place,
  booked.amount,
  moved.amount as expected
from booked
full join moved on moved.month = booked.month and moved.term = booked.term
where coalesce(booked.amount, 0) <> coalesce(moved.amount, 0)
