-- No bucket is above its limit in seed.limit.
-- severity: warn
select
  name,
  exposure,
  limit_amount,
  breached_since
from mart.limit_status
where state = 'breach'
order by name
