-- What a record in quarantine held stays on the sealed tape of its walk: the warehouse keeps where it stands there. Of records that
-- were stored before there were tapes it keeps the text.
alter table raw.quarantine add column place varchar;
