-- What the last walk of each stream that counts met, and neither the contract nor fields.json or seed.status knows.
-- grain: stream, kind, path, value
--
-- stream: deal, borrower or document
-- kind: new_field, missing_field or unknown_value
-- path: of the field in the source's records
-- value: of an unknown_value; else null
-- records: different records concerned, in lists or on own pages
-- whole: different records of that walk, or at least those concerned: own pages may show records that are not listed
with known_field as (
  select array_to_string(names[:depth], '.') as path
  from (select from_json(path, '["varchar"]') as names from raw.mapped_field), unnest(range(1, len(names) + 1)) as one(depth)
)

select
  drift.stream,
  drift.kind,
  drift.path,
  drift.value,
  drift.records,
  greatest(last_walk.records - last_walk.duplicates, drift.records) as whole
from raw.drift
inner join (
  select *
  from mart.run
  qualify recorded_at = max(recorded_at) over (partition by stream)
) as last_walk on last_walk.walk_id = drift.walk_id and last_walk.stream = drift.stream
where
  drift.stream <> 'deal'
  or not (
    drift.kind = 'unknown_value' and drift.path = 'status' and drift.value in (select status from seed.status)
    or drift.kind = 'new_field' and drift.path in (select path from known_field)
  )
