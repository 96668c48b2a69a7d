-- The certificates of all walks, and the records of their pages that could not be read.
select
  walk_id,
  stream,
  state,
  ended_how,
  business_date,
  is_complete,
  recorded_at,
  pages,
  records,
  distinct_records as "distinct",
  duplicates,
  quarantined,
  amount_total,
  coalesce(
    (
      select
        list({
          'page': cast(split_part(place, '/', 1) as integer),
          'position': cast(split_part(place, '/', 2) as integer),
          'path': path,
          'reason': reason
        } order by quarantine_id)
      from history.raw.quarantine as q
      where q.walk_id = walk.walk_id and walk.stream = 'deal' and q.source = 'list' and place like '%/%'
    ),
    []
  ) as quarantined_places
from history.raw.walk as walk
order by started_at, walk_id
