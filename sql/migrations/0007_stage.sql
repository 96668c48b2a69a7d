-- What a walk reads stands on its tape, and in memory until it is settled: nothing of a walk under way is stored any more.
delete from raw.listing
where walk_id in (select walk_id from raw.walk where state = 'walking');

delete from raw.quarantine
where walk_id in (select walk_id from raw.walk where state = 'walking');

update raw.walk
set state = 'abandoned', ended_how = 'begun by an earlier version'
where state = 'walking';

drop table raw.page;

drop table raw.staged_deal;

drop table raw.staged_borrower;

drop table raw.staged_document;
