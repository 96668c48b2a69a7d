-- Values stored twice in table 'raw.rate'
select
  feed,
  rate,
  rate_date,
  value
from rate
qualify value = lag(value) over (partition by feed, rate, rate_date order by seq)
order by all
