-- Exposure in the buckets that each limit of seed.limit names, since when it has been above the limit, and what it would be if all
-- approved deals funded. A limit that changes has a row in seed.limit for each date; every day is judged by the row then in force.
-- grain: name
-- check: unique(name)
-- check: not_null(name, dimension, bucket, scope, kind, limit_value, limit_amount, exposure, excess, state)
-- check: not_null(exposure_if_approved_fund, state_if_approved_fund)
-- check: between(limit_value, 0, 9999999999999999.99)
-- check: accepted(dimension, status, status_class, loan_program, state, size_band, ltv_band, created_month)
-- check: accepted(scope, open, funded)
-- check: accepted(kind, share, amount)
-- check: accepted(state, ok, warn, breach)
-- check: accepted(state_if_approved_fund, ok, warn, breach)
--
-- name: name of the limit; a limit that is not yet in force at as_of has no row
-- dimension: of the buckets, as in mart.portfolio_monthly
-- bucket: what is limited, such as `TX`, or several together, such as `75–80|80–85|85–90|>90`
-- scope: open or funded: the deals that count
-- kind: amount, or share of all deals that count
-- limit_value: USD, or percent for a share
-- warn_at_pct: above this share of the limit it is a warning, in percent; null when there is no warning
-- valid_from: first day this limit is in force; null when it always was
-- limit_amount: the limit L at today's total W of all deals that count, USD: L, or L × W for a share
-- exposure: E, the sum of loan_amount of the buckets' deals that count, USD
-- share_pct: E / W, in percent; null when W is 0
-- additional_room: what can still be lent in the bucket before it reaches its limit, USD: L − E, or (L × W − E) / (1 − L) for a
--   share, since new lending enlarges W as well, in whole cents rounded down; 0 in a breach; null when the limit is a share of
--   100 percent or more, which no lending exceeds
-- excess: amount above the limit, USD: E − limit_amount in a breach, else 0
-- state: breach above the limit, warn above warn_at_pct of it, else ok
-- breached_since: business date since which it has been in breach without a break, each day judged by the limit in force on it;
--   at the earliest the first walk or the first valid_from; null when not in breach
-- exposure_if_approved_fund: exposure if every pipeline deal that is approved, or further on by seed.status, funded today, USD
-- state_if_approved_fund: the state in that case, with shares taken of the total in that case
with
dated as (
  select
    *,
    row_number() over () as number,
    coalesce(valid_from, date '0001-01-01') as in_force_from,
    lead(valid_from) over (partition by name order by valid_from nulls first) as in_force_to
  from seed.limit
),

standing as (
  select
    standing.* exclude (loan_amount),
    standing.loan_amount as amount,
    standing.to_day is null
    and standing.status_class = 'pipeline'
    and status.sort_order >= approved.since_order as is_approved,
    cast(getvariable('as_of') as date) + 1 as next_day
  from work.deal_standing as standing
  left join seed.status as status on status.status = standing.status
  cross join (select min(sort_order) filter (where status = 'approved') as since_order from seed.status) as approved
  where standing.is_open
),

-- As if all that is approved funded on the day after as_of.
spans as (
  select
    from_day,
    case when is_approved then next_day else to_day end as to_day,
    amount,
    status_class = 'funded' as is_funded,
    status,
    status_class,
    loan_program,
    state,
    size_band,
    ltv_band,
    created_month
  from standing
  union all
  select
    next_day as from_day,
    null as to_day,
    amount,
    true as is_funded,
    'funded' as status,
    'funded' as status_class,
    loan_program,
    state,
    size_band,
    ltv_band,
    created_month
  from standing
  where is_approved
),

placed as (
  unpivot spans
  on status, status_class, loan_program, state, size_band, ltv_band, created_month
  into name dimension value bucket
),

scoped as (
  select
    'open' as scope,
    from_day,
    to_day,
    amount
  from spans
  union all
  select
    'funded' as scope,
    from_day,
    to_day,
    amount
  from spans
  where is_funded
),

-- One step where a deal begins to stand and one where it ends.
steps as (
  select
    limited.number,
    unnest([placed.from_day, placed.to_day]) as day,
    unnest([placed.amount, -placed.amount]) as amount,
    0 as whole
  from dated as limited
  inner join placed
    on
      placed.dimension = limited.dimension
      and (
        placed.bucket = limited.bucket
        or list_contains(list_transform(string_split(limited.bucket, '|'), lambda one: trim(one)), placed.bucket)
      )
  where limited.scope = 'open' or placed.is_funded
  union all
  select
    limited.number,
    unnest([spans.from_day, spans.to_day]) as day,
    0 as amount,
    unnest([spans.amount, -spans.amount]) as whole
  from dated as limited
  inner join scoped as spans on spans.scope = limited.scope
),

daily as (
  select
    number,
    day,
    sum(amount) as amount,
    sum(whole) as whole
  from steps
  group by
    number,
    day
),

days as (
  select
    cast(unnest(generate_series(first_on, cast(getvariable('as_of') as date) + 1, interval 1 day)) as date) as day
  from work.first_walk
),

exposed as (
  select
    limited.*,
    days.day,
    cast(coalesce(sum(daily.amount) over so_far, 0) as decimal(38, 2)) as exposure,
    cast(coalesce(sum(daily.whole) over so_far, 0) as decimal(38, 2)) as whole
  from dated as limited
  cross join days
  left join daily on daily.number = limited.number and daily.day = days.day
  window so_far as (partition by limited.number order by days.day)
),

-- The day after as_of is judged by the limit of as_of. A share limit is rounded down to whole cents: an exposure above it is also
-- above the exact limit.
limits as (
  select
    *,
    case kind
      when 'amount' then cast(limit_value as decimal(38, 2))
      else cast(cast(floor(cast(whole as decimal(27, 2)) * cast(limit_value as decimal(11, 2))) as decimal(34, 0)) * 0.01 as decimal(38, 2))
    end as limit_amount
  from exposed
  where
    least(day, cast(getvariable('as_of') as date)) >= in_force_from
    and coalesce(least(day, cast(getvariable('as_of') as date)) < in_force_to, true)
),

rated as (
  select
    *,
    case
      when exposure > limit_amount then 'breach'
      when cast(exposure as decimal(27, 2)) * 100 > cast(limit_amount as decimal(27, 2)) * cast(warn_at_pct as decimal(11, 2))
        then 'warn'
      else 'ok'
    end as state
  from limits
),

followed as (
  select
    *,
    max(day) filter (where state <> 'breach') over (partition by name order by day) as last_kept_on,
    min(day) over (partition by name) as first_on,
    lead(exposure) over (partition by name order by day) as exposure_if_approved_fund,
    lead(state) over (partition by name order by day) as state_if_approved_fund
  from rated
)

select
  name,
  dimension,
  bucket,
  scope,
  kind,
  limit_value,
  warn_at_pct,
  valid_from,
  limit_amount,
  exposure,
  round(exposure / nullif(whole, 0) * 100, 6) as share_pct,
  case
    when state = 'breach' then 0.00
    when kind = 'amount' then cast(limit_amount - exposure as decimal(38, 2))
    when limit_value < 100
      then cast(
        cast(
          (cast(limit_value * 100 as hugeint) * cast(whole * 100 as hugeint) - 10000 * cast(exposure * 100 as hugeint))
          // (10000 - cast(limit_value * 100 as hugeint)) as decimal(36, 0)
        ) * 0.01 as decimal(38, 2)
      )
  end as additional_room,
  cast(greatest(exposure - limit_amount, 0) as decimal(38, 2)) as excess,
  state,
  case when state = 'breach' then coalesce(last_kept_on + 1, first_on) end as breached_since,
  exposure_if_approved_fund,
  state_if_approved_fund
from followed
where day = cast(getvariable('as_of') as date)
