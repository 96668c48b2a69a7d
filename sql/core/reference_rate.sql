-- Reference rates of the feeds in LOANTAPE_RATES_FILE, the last known value of each day; empty without feeds. A rate is known
-- from the evening it was read: a release of a past date shows what was known then.
-- grain: feed, rate, rate_date
-- check: unique(feed, rate, rate_date)
-- check: not_null(feed, rate, rate_date, value, observed_at, revisions)
--
-- feed: name of the feed
-- rate: name of the rate in it
-- rate_date: the day the value is for, which may lie ahead
-- value: as the feed has it, exact; percent if the feed gives percent
-- observed_at: start of the request that first showed this value, UTC
-- revisions: how often the value of this day had changed before
with
known as (
  select
    feed,
    rate,
    rate_date,
    value,
    observed_at,
    count(*) over (partition by feed, rate, rate_date) - 1 as revisions,
    row_number() over (partition by feed, rate, rate_date order by seq desc) as recency
  from raw.rate
  where
    business_date <= cast(getvariable('as_of') as date)
    and recorded_at <= cast(getvariable('known_at') as timestamp)
)

select
  feed,
  rate,
  rate_date,
  cast(value as decimal(19, 8)) as value,
  observed_at,
  revisions
from known
where recency = 1
