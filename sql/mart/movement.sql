-- What moved the portfolio: a row for each day at whose end a deal's status or amount differs from the end of the day before. For
-- what moved since a day, take the rows of later days: per deal the first before, the last after and the sums of what moved.
-- grain: day, deal_id
-- per: deal_id
-- adds_up: open, funded, pipeline
-- check: unique(day, deal_id)
-- check: not_null(day, deal_id, what, open, funded, pipeline)
-- check: accepted(what, opening, came, returned, gone, funded, paid_off, sold, refinanced, foreclosed, charged_off, ended_other, reversed, fell_out, reopened, status, increased, decreased)
--
-- day: business date
-- deal_id: the service's id
-- what: opening: there at the end of the day of the first walk. came: there for the first time. gone: confirmed gone. returned: there
--   again after that. funded: from another class to funded. paid_off, sold, refinanced, foreclosed, charged_off: to the class
--   ended_funded, by the status's ending in seed.status; ended_other if that says none. reversed: from funded to any other
--   class. fell_out: to the class ended_unfunded. reopened: from an ended class to pipeline or unclassified. status: any other
--   change of status. increased, decreased: another amount in the same status
-- status_before: at the end of the day before; null if the deal was not there
-- status_after: at the end of the day; null if the deal is gone
-- class_before: status_class of status_before; null if that is
-- class_after: status_class of status_after; null if that is
-- amount_before: loan_amount at the end of the day before, USD; null if the deal was not there
-- amount_after: loan_amount at the end of the day, USD; null if the deal is gone
-- open: amount_after minus amount_before, each counted only in a class that has not ended, USD
-- funded: the same for the class funded, USD
-- pipeline: the same for the class pipeline, USD
with
spans as (
  select
    *,
    lag(to_day) over spells as until_before,
    lag(status) over spells as status_last,
    lag(loan_amount) over spells as amount_last,
    lead(from_day) over spells as next_day
  from work.position_span
  window spells as (partition by deal_id order by from_day)
),

-- A deal comes or changes where a span begins, and is gone where one ends and none begins.
steps as (
  select
    from_day as day,
    deal_id,
    until_before is not null as was_known,
    at_first_walk,
    if(until_before = from_day, status_last, null) as status_before,
    status as status_after,
    if(until_before = from_day, amount_last, null) as amount_before,
    loan_amount as amount_after
  from spans
  union all
  select
    to_day,
    deal_id,
    true,
    false,
    status,
    null,
    loan_amount,
    null
  from spans
  where to_day is not null and next_day is distinct from to_day
),

classed as (
  select
    steps.*,
    case when steps.status_before is not null then coalesce(earlier.class, 'unclassified') end as class_before,
    case when steps.status_after is not null then coalesce(later.class, 'unclassified') end as class_after,
    later.ending
  from steps
  left join seed.status as earlier on earlier.status = steps.status_before
  left join seed.status as later on later.status = steps.status_after
  where steps.status_before is distinct from steps.status_after or steps.amount_before is distinct from steps.amount_after
)

select
  day,
  deal_id,
  case
    when status_before is null and was_known then 'returned'
    when status_before is null then if(at_first_walk, 'opening', 'came')
    when status_after is null then 'gone'
    when class_before <> class_after and class_after = 'funded' then 'funded'
    when class_before <> class_after and class_after = 'ended_funded'
      then coalesce(ending, 'ended_other')
    when class_before <> class_after and class_before = 'funded' then 'reversed'
    when class_before <> class_after and class_after = 'ended_unfunded' then 'fell_out'
    when class_before <> class_after and starts_with(class_before, 'ended') then 'reopened'
    when status_before <> status_after then 'status'
    when amount_before < amount_after then 'increased'
    else 'decreased'
  end as what,
  status_before,
  status_after,
  class_before,
  class_after,
  amount_before,
  amount_after,
  cast(
    if(starts_with(class_after, 'ended'), 0, coalesce(amount_after, 0))
    - if(starts_with(class_before, 'ended'), 0, coalesce(amount_before, 0)) as decimal(18, 2)
  ) as open,
  cast(if(class_after = 'funded', amount_after, 0) - if(class_before = 'funded', amount_before, 0) as decimal(18, 2)) as funded,
  cast(
    if(class_after = 'pipeline', amount_after, 0) - if(class_before = 'pipeline', amount_before, 0) as decimal(18, 2)
  ) as pipeline
from classed
