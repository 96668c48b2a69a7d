-- paused_until: until when the source asked to wait, ms since the epoch; 0 if it never did.
alter table learnt_rate add column paused_until integer not null default 0;
