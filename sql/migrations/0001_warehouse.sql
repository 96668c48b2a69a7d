-- The warehouse's own tables. Append-only files: never edit one that has been released, add the next number.
create schema raw;

-- Single facts about this warehouse: the source it belongs to, the envelope it found.
create table raw.setting (
  name varchar not null,
  value varchar not null
);

-- One row per walk: its progress while it goes on, its certificate afterwards.
create table raw.walk (
  walk_id varchar not null,
  stream varchar not null,
  -- walking | applied | refused | abandoned
  state varchar not null,
  base_url varchar not null,
  -- what a walk was asked with; a change starts anew
  page_size bigint not null,
  filter varchar not null,
  business_date date not null,
  -- business clock, start of the first request
  started_at timestamp not null,
  -- business clock, when the last page was stored
  ended_at timestamp,
  -- real clock, when next_cursor was received
  cursor_received_at timestamp,
  next_cursor varchar,
  envelope varchar,
  is_complete boolean not null,
  resumed bigint not null,
  waited_ms bigint not null,
  pages bigint not null,
  records bigint not null,
  distinct_records bigint,
  duplicates bigint,
  quarantined bigint not null,
  unreadable_ids bigint not null,
  is_shifted boolean,
  amount_total decimal(38,2),
  -- sha256 over the cursors in order
  cursor_digest varchar,
  ended_how varchar,
  created bigint,
  updated bigint,
  missing bigint,
  vanished bigint,
  restored bigint,
  unchanged bigint,
  -- the bridge: present = distinct + kept_quarantined + kept_missing + adjusted
  present_deals bigint,
  present_amount decimal(38,2),
  kept_quarantined_deals bigint,
  kept_quarantined_amount decimal(38,2),
  kept_missing_deals bigint,
  kept_missing_amount decimal(38,2),
  adjusted_deals bigint,
  adjusted_amount decimal(38,2),
  details_fetched bigint,
  details_failed bigint,
  -- null until applied; strictly increasing
  recorded_at timestamp
);

-- Pages of the walk in progress; afterwards their digest stands in the certificate.
create table raw.page (
  walk_id varchar not null,
  page_no bigint not null,
  cursor varchar,
  records bigint not null,
  observed_at timestamp not null
);

-- Certificates of single parents' lists, such as the borrowers of one deal; they count with their walk.
create table raw.listing (
  walk_id varchar not null,
  stream varchar not null,
  parent_id varchar not null,
  -- listed (to its end) | gone (the list answered 404) | failed; only the first proves anything
  outcome varchar not null,
  -- business clock, start of the first request
  observed_at timestamp not null,
  pages bigint not null,
  records bigint not null,
  quarantined bigint not null,
  unreadable_ids bigint not null
);

-- Every value of a reference rate that differed from the one before; no row is ever updated.
create table raw.rate (
  seq bigint not null,
  feed varchar not null,
  rate varchar not null,
  rate_date date not null,
  value decimal(18,8) not null,
  -- business clock, when the feed began to be read
  observed_at timestamp not null,
  business_date date not null,
  recorded_at timestamp not null
);

-- Records that failed normalisation, kept whole; of streams with personal data sealed.
create table raw.quarantine (
  quarantine_id varchar not null,
  stream varchar not null,
  walk_id varchar,
  source varchar not null,
  record_id varchar,
  path varchar not null,
  reason varchar not null,
  record json not null,
  observed_at timestamp not null,
  business_date date not null,
  replayed_at timestamp
);

-- Where a walk's records were not as the contract has them: reported, never refused.
create table raw.drift (
  walk_id varchar not null,
  stream varchar not null,
  -- new_field | missing_field | unknown_value
  kind varchar not null,
  -- a field, `borrower.name` where it stands in another
  path varchar not null,
  -- of an unknown_value, else null: never what a field holds
  value varchar,
  records bigint not null
);

-- Every state a deal was observed in; no row is ever updated.
create table raw.deal_version (
  seq bigint not null,
  deal_id varchar not null,
  -- seen | missing | vanished
  kind varchar not null,
  -- list | detail | webhook | replay
  source varchar not null,
  walk_id varchar,
  observed_at timestamp not null,
  business_date date not null,
  recorded_at timestamp not null,
  row_hash uhugeint not null,
  list_hash uhugeint not null,
  property_address varchar,
  loan_amount decimal(18,2),
  property_value decimal(18,2),
  property_value_present boolean not null,
  loan_program varchar,
  loan_program_present boolean not null,
  status varchar,
  created_at timestamp,
  created_at_precision varchar,
  payload json
);

-- The latest state per deal, rebuildable from raw.deal_version; used by apply, never by a model.
create table raw.deal_head (
  deal_id varchar not null,
  kind varchar not null,
  walk_id varchar,
  observed_at timestamp not null,
  business_date date not null,
  row_hash uhugeint not null,
  list_hash uhugeint not null,
  property_address varchar,
  loan_amount decimal(18,2),
  property_value decimal(18,2),
  loan_program varchar,
  status varchar,
  created_at timestamp,
  created_at_precision varchar,
  -- business clock, when the deal's own page was last fetched
  detail_at timestamp
);

-- Observations of the walk in progress, the only one a stream has.
create table raw.staged_deal (
  -- list | detail | gone (its own page answered 404 or 410)
  source varchar not null,
  page_no bigint not null,
  position bigint not null,
  observed_at timestamp not null,
  deal_id varchar not null,
  property_address varchar,
  loan_amount decimal(18,2),
  property_value decimal(18,2),
  property_value_present boolean not null,
  loan_program varchar,
  loan_program_present boolean not null,
  status varchar,
  created_at timestamp,
  created_at_precision varchar,
  payload json
);

-- Every state the link of a borrower to a deal was observed in; no row is ever updated. No personal data but keyed hashes.
create table raw.borrower_version (
  seq bigint not null,
  -- deal_id/borrower_id
  link_id varchar not null,
  -- seen | missing | vanished
  kind varchar not null,
  -- list | replay
  source varchar not null,
  walk_id varchar,
  observed_at timestamp not null,
  business_date date not null,
  recorded_at timestamp not null,
  row_hash uhugeint not null,
  list_hash uhugeint not null,
  deal_id varchar,
  borrower_id varchar,
  email_hash varchar,
  created_at timestamp,
  created_at_precision varchar,
  -- names of the fields the contract does not know, never what they hold
  payload json
);

create table raw.borrower_head (
  link_id varchar not null,
  kind varchar not null,
  walk_id varchar,
  observed_at timestamp not null,
  business_date date not null,
  row_hash uhugeint not null,
  list_hash uhugeint not null,
  deal_id varchar,
  borrower_id varchar,
  email_hash varchar,
  created_at timestamp,
  created_at_precision varchar,
  detail_at timestamp
);

create table raw.staged_borrower (
  source varchar not null,
  page_no bigint not null,
  position bigint not null,
  observed_at timestamp not null,
  link_id varchar not null,
  deal_id varchar,
  borrower_id varchar,
  email_hash varchar,
  created_at timestamp,
  created_at_precision varchar,
  payload json
);

-- Every state a document of a deal was observed in; no row is ever updated. No personal data but keyed hashes.
create table raw.document_version (
  seq bigint not null,
  -- deal_id/document_id
  attachment_id varchar not null,
  -- seen | missing | vanished
  kind varchar not null,
  -- list | replay
  source varchar not null,
  walk_id varchar,
  observed_at timestamp not null,
  business_date date not null,
  recorded_at timestamp not null,
  row_hash uhugeint not null,
  list_hash uhugeint not null,
  deal_id varchar,
  document_id varchar,
  category varchar,
  created_at timestamp,
  created_at_precision varchar,
  -- names of the fields the contract does not know, never what they hold
  payload json
);

create table raw.document_head (
  attachment_id varchar not null,
  kind varchar not null,
  walk_id varchar,
  observed_at timestamp not null,
  business_date date not null,
  row_hash uhugeint not null,
  list_hash uhugeint not null,
  deal_id varchar,
  document_id varchar,
  category varchar,
  created_at timestamp,
  created_at_precision varchar,
  detail_at timestamp
);

create table raw.staged_document (
  source varchar not null,
  page_no bigint not null,
  position bigint not null,
  observed_at timestamp not null,
  attachment_id varchar not null,
  deal_id varchar,
  document_id varchar,
  category varchar,
  created_at timestamp,
  created_at_precision varchar,
  payload json
);
