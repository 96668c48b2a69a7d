-- What people noted about days, deals and limits, in the order in which it was written. A row without text withdraws the one that it
-- replaces. Nothing is changed or deleted; only one row replaces another.
create table note (
  note_no integer primary key,
  about text not null check (about in ('day', 'deal', 'limit')),
  subject text not null,
  text text,
  at text not null,
  who text not null,
  replaces integer unique
) strict;
create index note_by_subject on note (about, subject);

alter table page_action add column why text;
