-- Where the tape stood that says what was stored: the chain of its outcome. Null of what was stored without a tape.
alter table raw.settle add column tape_head varchar;
