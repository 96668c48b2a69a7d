-- Whether every walk added since a moment ended, and was stored, after everything that counted then.
with
known as (
  select observed_at, recorded_at from history.raw.deal_version as version where {version_counted}
  union all
  select observed_at, recorded_at from history.raw.quarantine as record where {record_counted}
),

added as (
  select
    min(coalesce(ended_at, started_at)) as ended_at,
    min(recorded_at) as recorded_at
  from history.raw.walk as walk
  where state = 'applied' and {walk_is_new}
)

select
  coalesce(
    (select ended_at from added) >= (select max(observed_at) from known)
    and (select recorded_at from added) >= (select max(recorded_at) from known),
    true
  ) as follow
