-- What is lent in each bucket that seed.limit limits, since when that is too much, and what it would be if all approved deals funded.
-- grain: name
-- check: unique(name)
-- check: not_null(name, dimension, bucket, scope, kind, limit_value, limit_amount, exposure, headroom, state)
-- check: not_null(exposure_if_approved_fund, state_if_approved_fund)
-- check: accepted(dimension, status, status_class, loan_program, state, size_band, ltv_band, created_month)
-- check: accepted(scope, open, funded)
-- check: accepted(kind, share, amount)
-- check: accepted(state, ok, warn, breach)
-- check: accepted(state_if_approved_fund, ok, warn, breach)
--
-- name: as people call the limit
-- dimension: of the bucket, as in mart.portfolio_monthly
-- bucket: what is limited, such as `TX`
-- scope: open or funded: the deals that count
-- kind: amount, or share of all deals that count
-- limit_value: USD, or percent for a share
-- warn_at_pct: above this part of the limit it is a warning, in percent; null for none
-- limit_amount: the limit at today's total, USD
-- exposure: sum of loan_amount of the bucket's deals that count, USD
-- share_pct: its share of all deals that count, in percent; null where there are none
-- headroom: limit_amount less exposure, USD; negative in a breach
-- state: breach above the limit, warn above warn_at_pct of it, else ok
-- breached_since: business date since which it is a breach without a break, at the earliest that of the first walk; null when it
--   is none
-- exposure_if_approved_fund: exposure if every deal of the pipeline that is approved, or further on by seed.status, funded today,
--   USD
-- state_if_approved_fund: the state then, shares being of the total then
with
standing as (
  select
    standing.* exclude (loan_amount),
    standing.loan_amount as amount,
    standing.to_day is null
    and standing.status_class = 'pipeline'
    and coalesce(status.sort_order >= approved.since_order, false) as is_approved,
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
    limited.name,
    unnest([placed.from_day, placed.to_day]) as day,
    unnest([placed.amount, -placed.amount]) as amount,
    0 as whole
  from seed.limit as limited
  inner join placed on placed.dimension = limited.dimension and placed.bucket = limited.bucket
  where limited.scope = 'open' or placed.is_funded
  union all
  select
    limited.name,
    unnest([spans.from_day, spans.to_day]) as day,
    0 as amount,
    unnest([spans.amount, -spans.amount]) as whole
  from seed.limit as limited
  inner join scoped as spans on spans.scope = limited.scope
),

daily as (
  select
    name,
    day,
    sum(amount) as amount,
    sum(whole) as whole
  from steps
  group by
    name,
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
  from seed.limit as limited
  cross join days
  left join daily on daily.name = limited.name and daily.day = days.day
  window so_far as (partition by limited.name order by days.day)
),

-- A share of the total in whole cents: an exposure is above it where it is above the exact one.
limits as (
  select
    *,
    case kind
      when 'amount' then cast(limit_value as decimal(38, 2))
      else cast(cast(floor(cast(whole as decimal(27, 2)) * cast(limit_value as decimal(11, 2))) as decimal(34, 0)) * 0.01 as decimal(38, 2))
    end as limit_amount
  from exposed
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
  limit_amount,
  exposure,
  round(exposure / nullif(whole, 0) * 100, 6) as share_pct,
  cast(limit_amount - exposure as decimal(38, 2)) as headroom,
  state,
  case when state = 'breach' then coalesce(last_kept_on + 1, first_on) end as breached_since,
  exposure_if_approved_fund,
  state_if_approved_fund
from followed
where day = cast(getvariable('as_of') as date)
