-- Certificates whose records do not add up, table 'raw.walk'
select
  walk_id,
  records,
  created + updated + restored + unchanged + duplicates + quarantined as explained
from walk
where stream = '{name}' and state = 'applied' and records is distinct from explained
order by recorded_at desc
