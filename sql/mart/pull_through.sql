-- Pull-through by month and loan program, by number and amount: how much of what entered was funded and how much fell out. A
-- month's shares divide its fundings, or its fallout, by its new deals; the cohort's share follows the deals created in the
-- month. Every column uses the program the deal was last known to have, so its entry and its funding are in the same program.
-- Months before the first walk are left out. In the first one, fundings and fallout count from the first walk on, and of the
-- deals created before it only those still there: its shares are null unless the walk was on its first day. Source of both terms:
-- Comptroller of the Currency, Comptroller's Handbook, Mortgage Banking (2014), glossary.
-- grain: month, loan_program
-- adds_up: entered, entered_amount, funded, funded_amount, fallout, fallout_amount, cohort_funded
-- check: unique(month, loan_program)
-- check: not_null(month, loan_program, entered, entered_amount, funded, funded_amount, fallout, fallout_amount)
-- check: not_null(cohort_funded)
-- check: between(cohort_pull_through_pct, 0, 100)
--
-- month: YYYY-MM; every month from the first walk to as_of, and later ones to which the source dates deals ahead
-- loan_program: as last known; `unknown` if it is not; `(all)` for all programs together
-- entered: deals created in the month (created_on)
-- entered_amount: their amounts when they were first seen, USD
-- funded: deals funded for the first time in the month, whenever created; for `(all)` those of mart.origination_monthly. A loan
--   that was never seen as funded, such as one first seen as sold after it was closing, is in none, but in cohort_funded
-- funded_amount: their amounts when they were funded, USD
-- fallout: deals that fell out in the month without having been funded, whenever created: declined, withdrawn or in another
--   status of class ended_unfunded, or vanished; a deal that comes back no longer counts
-- fallout_amount: their amounts before they fell out, USD
-- pull_through_pct: funded by entered, in percent; may exceed 100; null when nothing entered, in a first month that began
--   before the first walk, and in a month that has not begun
-- pull_through_amount_pct: funded_amount by entered_amount, in percent; null if pull_through_pct is, and when entered_amount is 0
-- fallout_pct: fallout by entered, in percent; may exceed 100; null if pull_through_pct is
-- fallout_amount_pct: fallout_amount by entered_amount, in percent; null if pull_through_amount_pct is
-- cohort_funded: of the deals created in the month, those funded by as_of, even if they no longer are
-- cohort_pull_through_pct: cohort_funded by entered, in percent; rises while the cohort ages; null if pull_through_pct is
with
facts as (
  select
    created_month as month,
    coalesce(loan_program, 'unknown') as loan_program,
    'entered' as kind,
    first_amount as amount,
    reached_funded_on is not null as is_funded
  from work.deal_life
  where created_month >= strftime(first_walk_on, '%Y-%m')
  union all
  select
    movement.month,
    coalesce(life.loan_program, 'unknown') as loan_program,
    'funded' as kind,
    movement.amount,
    true as is_funded
  from work.funded_movement as movement
  inner join work.deal_life as life on life.deal_id = movement.deal_id
  where movement.term = 'originated'
  union all
  select
    strftime(fell_out_on, '%Y-%m') as month,
    coalesce(loan_program, 'unknown') as loan_program,
    'fallout' as kind,
    fell_out_amount as amount,
    false as is_funded
  from work.deal_life
  where fell_out_on is not null
),

summed as (
  select
    month,
    coalesce(loan_program, '(all)') as loan_program,
    count(*) filter (where kind = 'entered') as entered,
    sum(amount) filter (where kind = 'entered') as entered_amount,
    count(*) filter (where kind = 'funded') as funded,
    sum(amount) filter (where kind = 'funded') as funded_amount,
    count(*) filter (where kind = 'fallout') as fallout,
    sum(amount) filter (where kind = 'fallout') as fallout_amount,
    count(*) filter (where kind = 'entered' and is_funded) as cohort_funded
  from facts
  group by grouping sets ((month), (month, loan_program))
),

-- A deal created while the last walk crossed the cut-off, or dated ahead by its source, belongs to a later month.
months as (
  select
    month,
    date_trunc('month', from_day) = from_day as is_observed
  from work.month
  union all
  select distinct
    month,
    false as is_observed
  from summed
  where month > (select max(month) from work.month)
),

programs as (
  select distinct coalesce(loan_program, 'unknown') as loan_program
  from work.deal_life
  union all
  select '(all)' as loan_program
),

filled as (
  select
    months.month,
    programs.loan_program,
    coalesce(summed.entered, 0) as entered,
    coalesce(summed.entered_amount, 0) as entered_amount,
    coalesce(summed.funded, 0) as funded,
    coalesce(summed.funded_amount, 0) as funded_amount,
    coalesce(summed.fallout, 0) as fallout,
    coalesce(summed.fallout_amount, 0) as fallout_amount,
    coalesce(summed.cohort_funded, 0) as cohort_funded,
    case when months.is_observed then nullif(coalesce(summed.entered, 0), 0) end as whole,
    case when months.is_observed then nullif(coalesce(summed.entered_amount, 0), 0) end as whole_amount
  from months
  cross join programs
  left join summed on summed.month = months.month and summed.loan_program = programs.loan_program
)

select
  month,
  loan_program,
  entered,
  cast(entered_amount as decimal(38, 2)) as entered_amount,
  funded,
  cast(funded_amount as decimal(38, 2)) as funded_amount,
  fallout,
  cast(fallout_amount as decimal(38, 2)) as fallout_amount,
  round(funded / whole * 100, 6) as pull_through_pct,
  round(funded_amount / whole_amount * 100, 6) as pull_through_amount_pct,
  round(fallout / whole * 100, 6) as fallout_pct,
  round(fallout_amount / whole_amount * 100, 6) as fallout_amount_pct,
  cohort_funded,
  round(cohort_funded / whole * 100, 6) as cohort_pull_through_pct
from filled
