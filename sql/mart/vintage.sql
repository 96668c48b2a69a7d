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
cohorts as (
  select
    cohort_month,
    cast(cohort_month || '-01' as date) as start,
    count(*) as deals,
    sum(amount) as amount
  from work.funded_movement
  where term = 'originated' and cohort_month is not null
  group by cohort_month
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

-- Many loans of a cohort stand in an outcome from one month to another.
steps as (
  select
    cohort_month,
    case when event in ('ended', 'reversal') then term else 'funded' end as outcome,
    month,
    next_month,
    count(*) as deals,
    sum(
      case
        when event in ('ended', 'reversal') then amount
        when event = 'decrease' then previous_amount - amount
        else coalesce(previous_amount, 0) + amount
      end
    ) as amount
  from work.funded_movement
  where cohort_month is not null and event <> 'reclass'
  group by
    cohort_month,
    outcome,
    month,
    next_month
),

spans as (
  select
    steps.cohort_month,
    steps.outcome,
    steps.deals,
    steps.amount,
    date_diff('month', cohorts.start, cast(steps.month || '-01' as date)) as from_age,
    coalesce(date_diff('month', cohorts.start, cast(steps.next_month || '-01' as date)), 1000000) as to_age
  from steps
  inner join cohorts on cohorts.cohort_month = steps.cohort_month
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
