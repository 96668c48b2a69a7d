-- Latest states that are not those of the last versions, tables 'raw.{name}_head' and 'raw.{name}_version'
with
latest as (
  from {name}_version
  qualify row_number() over (partition by {id} order by observed_at desc, seq desc) = 1
)

select
  {id},
  latest.kind as version,
  head.kind as head
from latest
full join {name}_head as head using ({id})
where
  (latest.kind, latest.observed_at, latest.business_date)
  is distinct from (head.kind, head.observed_at, head.business_date)
order by all
