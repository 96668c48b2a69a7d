-- Versions of no applied walk in table 'raw.{name}_version'
select
  version.walk_id,
  count(*) as versions
from {name}_version as version
left join walk
  on walk.walk_id = version.walk_id
    and walk.state = 'applied'
    and walk.recorded_at = version.recorded_at
where version.walk_id is not null and walk.walk_id is null
group by version.walk_id
order by all
