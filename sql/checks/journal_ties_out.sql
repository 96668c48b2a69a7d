-- The journal books the roll-forward: month by month each event is the sum of its terms, less what another system books, and the
-- loan register is the funded amount.
-- severity: error
with
booked as (
  select
    period as month,
    event,
    sum(debit) as debit,
    sum(credit) as credit
  from accounting.journal_line
  where event not in ('reclass', 'ended')
  group by
    period,
    event
),

moved as (
  select
    month,
    case
      when term in ('originated', 'refunded', 'restored') then 'funding'
      when term in ('reversed', 'vanished') then 'reversal'
      when term = 'increased' then 'increase'
      when term = 'decreased' then 'decrease'
    end as event,
    sum(amount) as amount
  from (
    select
      month,
      term,
      amount
    from mart.funded_rollforward_deal
    union all
    select
      month,
      term,
      -elsewhere as amount
    from accounting.tie_out
  )
  where term in ('originated', 'refunded', 'restored', 'reversed', 'vanished', 'increased', 'decreased')
  group by
    month,
    event
  having sum(amount) > 0
)

select
  coalesce(booked.month, moved.month) || ' ' || coalesce(booked.event, moved.event) as place,
  booked.debit,
  booked.credit,
  moved.amount as expected
from booked
full join moved on moved.month = booked.month and moved.event = booked.event
where booked.debit is distinct from moved.amount or booked.credit is distinct from moved.amount
union all
select
  'loan register' as place,
  register.amount as debit,
  null as credit,
  summary.funded_amount as expected
from (select coalesce(sum(loan_amount), 0) as amount from accounting.loan_register) as register
cross join mart.portfolio_summary as summary
where register.amount <> summary.funded_amount
