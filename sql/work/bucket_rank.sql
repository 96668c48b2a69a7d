-- The buckets that have a place of their own within their dimension: bands by size, statuses as in seed.status.
-- grain: dimension, bucket
--
-- dimension: status, status_class, size_band or ltv_band
-- bucket: a status, class or band
-- place: its place among those of the dimension
select
  'status' as dimension,
  status as bucket,
  sort_order as place
from seed.status
union all
select
  'status_class' as dimension,
  unnest(['pipeline', 'funded', 'ended_funded', 'ended_unfunded', 'unclassified']) as bucket,
  unnest(range(5)) as place
union all
select
  'size_band' as dimension,
  unnest(['<250k', '250–500k', '500k–1m', '1–2.5m', '2.5–5m', '5–10m', '≥10m']) as bucket,
  unnest(range(7)) as place
union all
select
  'ltv_band' as dimension,
  unnest(['≤50', '50–60', '60–65', '65–70', '70–75', '75–80', '80–85', '85–90', '>90', 'unknown']) as bucket,
  unnest(range(10)) as place
