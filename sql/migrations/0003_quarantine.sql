-- A record counts from the settle of its walk on; that of a walk that was refused, given up or is under way counts in no
-- release. Pruning empties the text and leaves the row.
alter table raw.quarantine add column recorded_at timestamp;

alter table raw.quarantine alter column record drop not null;

update raw.quarantine set recorded_at = coalesce(
  (select walk.recorded_at from raw.walk where walk.walk_id = quarantine.walk_id),
  quarantine.observed_at
)
where quarantine.walk_id is null or not exists (
  from raw.walk where walk.walk_id = quarantine.walk_id and walk.recorded_at is null
);
