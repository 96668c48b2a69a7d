-- Where the tape stood that says what was stored: the chain of its outcome. Null of what was stored without a tape.
alter table raw.settle add column tape_head varchar;

-- A walk is stored once it has ended: what was being settled when its run died is on its tape.
delete from raw.listing
where walk_id in (select walk_id from raw.walk where state = 'walking');

delete from raw.quarantine
where walk_id in (select walk_id from raw.walk where state = 'walking');

delete from raw.drift
where walk_id in (select walk_id from raw.walk where state = 'walking');

delete from raw.walk
where state = 'walking';
