-- The value in force of every rate on every calendar day from its first to as_of: that of the day itself, or the last one
-- before it.
-- grain: feed, rate, day
-- check: unique(feed, rate, day)
-- check: not_null(feed, rate, day, value, rate_date)
--
-- feed: name of the feed
-- rate: name of the rate in it
-- day: calendar day
-- value: as of core.reference_rate
-- rate_date: the day the value is for: on a weekend the Friday before; far behind day if the feed has stopped
with
spans as (
  select
    feed,
    rate,
    rate_date,
    value,
    lead(rate_date) over (partition by feed, rate order by rate_date) as next_date
  from core.reference_rate
  where rate_date <= cast(getvariable('as_of') as date)
)

select
  feed,
  rate,
  cast(
    unnest(
      generate_series(rate_date, coalesce(next_date - 1, cast(getvariable('as_of') as date)), interval 1 day)
    ) as date
  ) as day,
  value,
  rate_date
from spans
