-- No bucket is above its limit in seed.limit.
-- severity: warn
-- next: `mart.limit_status` says by how much and since when.
select
  name,
  exposure,
  limit_amount,
  excess,
  breached_since
from mart.limit_status
where state = 'breach'
order by name
