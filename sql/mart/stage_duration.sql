-- How long deals stay in each status, by how they leave it, in calendar days from one business date to another, weekends
-- included. Going missing, or vanishing and coming back, neither ends a spell nor stops its days. Quantiles are those of the
-- product-limit curve S(t) = Π (1 − exits at age i / spells at risk at age i) over the ages i ≤ t, so ongoing spells count for as
-- long as they have lasted. A spell first seen at a later age, such as a draft created before the first walk, is at risk from
-- that age on (left truncation); for one kind of exit, all others end the watch (censoring). Source: Kaplan and Meier,
-- Nonparametric Estimation from Incomplete Observations, JASA 53 (1958); left truncation as in Klein and Moeschberger, Survival
-- Analysis, 2nd edition, 4.6. The curve is kept in whole units of 10^-24 and read at 12 decimals. Spells whose age when first
-- seen is unknown are left out: `censored_stage_began_unseen` of mart.data_quality.
-- grain: status, exit
-- adds_up: spells, completed, at_risk
-- check: unique(status, exit)
-- check: not_null(status, exit, spells, completed, at_risk)
-- check: accepted(exit, advance, fallout, vanish, any)
--
-- status: every status ever seen
-- exit: advance (to a status further on in seed.status), fallout (to one of class ended_unfunded), vanish (the deal vanished),
--   or any: one of these, a step back, or a step to a status that seed.status does not list
-- spells: spells of the status that are measured; a deal that comes back to a status has several
-- completed: those that ended in this exit
-- at_risk: those ongoing at as_of, missing deals included: what may exit next
-- median_days: the smallest number of days t with S(t) ≤ 0.5; null if the curve does not fall that far
-- p90_days: the smallest number of days t with S(t) ≤ 0.1, which nine in ten do not exceed; null if the curve does not fall
--   that far
with recursive
-- Few rows, however many deals there are; of spells left out, those without days, only the status counts.
spells as (
  select
    status,
    exit,
    days,
    entry,
    count(days) as spells
  from (
    select
      status,
      exit,
      case when started_on is not null then greatest(coalesce(ended_on, cast(getvariable('as_of') as date)) - started_on, 0) end
        as days,
      case when exit is not null then least(watched_from, days) else watched_from end as entry
    from work.stage_spell
  ) as each_spell
  group by
    status,
    exit,
    days,
    entry
),

-- One row per status and age.
ages as (
  select
    status,
    age,
    sum(entered) as entered,
    sum(gone) as gone,
    sum(advanced) as advanced,
    sum(fell_out) as fell_out,
    sum(vanished) as vanished,
    sum(exited) as exited
  from (
    select
      status,
      entry as age,
      spells as entered,
      0 as gone,
      0 as advanced,
      0 as fell_out,
      0 as vanished,
      0 as exited
    from spells
    where entry <= days
    union all
    select
      status,
      days as age,
      0 as entered,
      spells as gone,
      if(exit = 'advance', spells, 0) as advanced,
      if(exit = 'fallout', spells, 0) as fell_out,
      if(exit = 'vanish', spells, 0) as vanished,
      if(exit is null, 0, spells) as exited
    from spells
    where entry <= days
  ) as moves
  group by
    status,
    age
),

risks as (
  select
    *,
    sum(entered) over so_far - sum(gone) over so_far + gone as at_risk
  from ages
  window so_far as (partition by status order by age)
),

exits as (
  select
    status,
    age,
    cast(at_risk as hugeint) as at_risk,
    unnest(['advance', 'fallout', 'vanish', 'any']) as exit,
    cast(unnest([advanced, fell_out, vanished, exited]) as hugeint) as exits
  from risks
),

steps as (
  select
    *,
    row_number() over (partition by status, exit order by age) as step
  from exits
  where exits > 0
),

curve as (
  select
    status,
    exit,
    0 as step,
    0 as age,
    cast(1000000000000000000000000 as hugeint) as survival
  from steps
  where step = 1
  union all
  select
    steps.status,
    steps.exit,
    steps.step,
    steps.age,
    (2 * curve.survival * (steps.at_risk - steps.exits) + steps.at_risk) // (2 * steps.at_risk) as survival
  from curve
  inner join steps on steps.status = curve.status and steps.exit = curve.exit and steps.step = curve.step + 1
),

quantiles as (
  select
    status,
    exit,
    min(age) filter (where (survival + 500000000000) // 1000000000000 <= 500000000000) as median_days,
    min(age) filter (where (survival + 500000000000) // 1000000000000 <= 100000000000) as p90_days
  from curve
  group by
    status,
    exit
),

totals as (
  select
    status,
    sum(spells) as spells,
    coalesce(sum(spells) filter (where exit = 'advance'), 0) as advanced,
    coalesce(sum(spells) filter (where exit = 'fallout'), 0) as fell_out,
    coalesce(sum(spells) filter (where exit = 'vanish'), 0) as vanished,
    coalesce(sum(spells) filter (where exit is not null), 0) as exited
  from spells
  group by status
),

statuses as (
  select
    status,
    spells,
    spells - exited as at_risk,
    unnest(['advance', 'fallout', 'vanish', 'any']) as exit,
    unnest([advanced, fell_out, vanished, exited]) as completed
  from totals
)

select
  statuses.status,
  statuses.exit,
  cast(statuses.spells as bigint) as spells,
  cast(statuses.completed as bigint) as completed,
  cast(statuses.at_risk as bigint) as at_risk,
  cast(quantiles.median_days as bigint) as median_days,
  cast(quantiles.p90_days as bigint) as p90_days
from statuses
left join quantiles on quantiles.status = statuses.status and quantiles.exit = statuses.exit
