-- The fields of a deal that fields.json maps, and what every deal said of them. They stand beside the history: what is mapped
-- changes no version and no history_id. Both are made anew by a rebuild.
create table raw.mapped_field (
  name varchar not null,
  -- Names that lead to it in a record, as a JSON array.
  path varchar not null,
  type varchar not null,
  meaning varchar not null,
  -- It is known of everything stored from here on, null: of everything.
  since timestamp
);

create table raw.deal_extra (
  seq bigint not null,
  deal_id varchar not null,
  name varchar not null,
  -- Null when null or unreadable.
  value varchar,
  is_readable boolean not null,
  observed_at timestamp not null,
  business_date date not null,
  recorded_at timestamp not null
);
