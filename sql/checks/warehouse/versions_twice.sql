-- Versions stored twice in table 'raw.{name}_version'
select
  {id},
  observed_at,
  count(*) as copies
from {name}_version
group by {id}, observed_at, walk_id, source, recorded_at
having count(*) > 1
order by all
