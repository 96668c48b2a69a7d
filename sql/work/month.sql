-- Every month from the first walk to as_of.
-- grain: month
--
-- month: YYYY-MM
-- from_day: its first day that counts: the first walk's in the first month
-- to_day: its last day that counts: as_of in the last month
with
starts as (
  select
    first_on,
    unnest(
      generate_series(date_trunc('month', first_on), cast(getvariable('as_of') as date), interval 1 month)
    ) as start
  from work.first_walk
)

select
  strftime(start, '%Y-%m') as month,
  greatest(cast(start as date), first_on) as from_day,
  least(last_day(start), cast(getvariable('as_of') as date)) as to_day
from starts
