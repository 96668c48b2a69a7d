-- Vintages: what became of the loans first funded in a month, by months on book. A vintage is a cohort by origination that is
-- followed by months on book, as the Risk Management Association and the rating agencies use the word. Every loan of a cohort is
-- in exactly one outcome at each age: where it stands at the end of that month, so a loan that left and came back is funded
-- again. Only months that have ended by as_of are included. Cohorts whose month began before the first walk are left out, and so
-- are deals funded before anybody saw them: `censored_vintage` of mart.data_quality counts these deals.
-- grain: cohort_month, months_on_book, outcome
-- adds_up: deals, amount, cohort_deals, cohort_amount
-- check: unique(cohort_month, months_on_book, outcome)
-- check: not_null(cohort_month, months_on_book, outcome, deals, amount, cohort_deals, cohort_amount)
-- check: accepted(outcome, funded, paid_off, sold, refinanced, foreclosed, charged_off, ended_other, reversed, vanished)
--
-- cohort_month: month of the first funding, YYYY-MM, as in mart.origination_monthly
-- months_on_book: calendar months after the cohort's month, 0 being that month itself
-- outcome: funded: still, or again, in the funded book. paid_off, sold, refinanced, foreclosed, charged_off, ended_other,
--   reversed, vanished: left it, by the term of mart.funded_rollforward under which it last did
-- deals: deals of the cohort in this outcome; 0 if there are none
-- amount: for funded deals their amount at that age, for others what last left the book, USD
-- share_pct: amount by cohort_amount, in percent: the cumulative share of the cohort's first amount; over 100 if amounts
--   were increased; null when cohort_amount is 0
-- cohort_deals: deals first funded in the month; the same at every age
-- cohort_amount: their amounts when they were first funded, USD; the same at every age
with
fundings as (
  select
    movement.deal_id,
    movement.month as cohort_month,
    cast(date_trunc('month', movement.business_date) as date) as start,
    movement.amount
  from work.funded_movement as movement
  inner join work.deal_life as life on life.deal_id = movement.deal_id
  where
    movement.term = 'originated'
    and cast(date_trunc('month', movement.business_date) as date) >= life.first_walk_on
),

cohorts as (
  select
    cohort_month,
    start,
    count(*) as deals,
    sum(amount) as amount
  from fundings
  group by
    cohort_month,
    start
),

ages as (
  select
    cohort_month,
    deals,
    amount,
    unnest(
      range(date_diff('month', start, cast(getvariable('as_of') as date) + 1))
    ) as months_on_book
  from cohorts
),

outcomes as (
  select
    unnest([
      'funded',
      'paid_off',
      'sold',
      'refinanced',
      'foreclosed',
      'charged_off',
      'ended_other',
      'reversed',
      'vanished'
    ]) as outcome
),

steps as (
  select
    movement.deal_id,
    fundings.cohort_month,
    case when movement.event in ('ended', 'reversal') then movement.term else 'funded' end as outcome,
    case
      when movement.event in ('ended', 'reversal') then movement.amount
      when movement.event = 'decrease' then movement.previous_amount - movement.amount
      else coalesce(movement.previous_amount, 0) + movement.amount
    end as amount,
    date_diff('month', fundings.start, movement.business_date) as from_age,
    lead(date_diff('month', fundings.start, movement.business_date))
      over (partition by movement.deal_id order by movement.version, movement.event <> 'funding') as to_age
  from work.funded_movement as movement
  inner join fundings on fundings.deal_id = movement.deal_id
  where movement.event <> 'reclass'
),

-- Many loans of a cohort stand in an outcome from one age to another.
spans as (
  select
    cohort_month,
    outcome,
    from_age,
    coalesce(to_age, 1000000) as to_age,
    count(*) as deals,
    sum(amount) as amount
  from steps
  group by
    cohort_month,
    outcome,
    from_age,
    coalesce(to_age, 1000000)
)

select
  ages.cohort_month,
  ages.months_on_book,
  outcomes.outcome,
  cast(coalesce(sum(spans.deals), 0) as bigint) as deals,
  cast(coalesce(sum(spans.amount), 0) as decimal(38, 2)) as amount,
  round(coalesce(sum(spans.amount), 0) / nullif(ages.amount, 0) * 100, 6) as share_pct,
  ages.deals as cohort_deals,
  cast(ages.amount as decimal(38, 2)) as cohort_amount
from ages
cross join outcomes
left join spans
  on
    spans.cohort_month = ages.cohort_month
    and spans.outcome = outcomes.outcome
    and spans.from_age <= ages.months_on_book
    and spans.to_age > ages.months_on_book
group by
  ages.cohort_month,
  ages.months_on_book,
  outcomes.outcome,
  ages.deals,
  ages.amount
