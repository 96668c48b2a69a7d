-- The warehouse's own tables. Append-only files: never edit one that has been released, add the next number.
create schema raw;

-- Single facts about this warehouse: the source it belongs to, the envelope it found.
create table raw.setting (
  name varchar not null,
  value varchar not null
);

-- One row per walk that has ended: its certificate. One under way stands on its tape.
create table raw.walk (
  walk_id varchar not null,
  stream varchar not null,
  -- applied | refused | abandoned
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
  envelope varchar,
  is_complete boolean not null,
  resumed bigint not null,
  -- what an operator accepted beforehand although a guard would refuse it
  accepted varchar,
  accepted_by varchar,
  accepted_why varchar,
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

-- Records that failed normalisation: why, and where each stands on the sealed tape of its walk, which alone holds it.
create table raw.quarantine (
  quarantine_id varchar not null,
  stream varchar not null,
  walk_id varchar not null,
  -- list | detail
  source varchar not null,
  -- null when it could not be read
  record_id varchar,
  path varchar not null,
  reason varchar not null,
  observed_at timestamp not null,
  business_date date not null,
  replayed_at timestamp,
  -- it counts from the settle of its walk on; null when that was refused: it counts in no release
  recorded_at timestamp,
  -- null once pruned, or that tape is not kept any more
  place varchar
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
  created_at_precision varchar
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
  created_at_precision varchar
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
  created_at_precision varchar
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

-- What the history is made of: one row per settle, which is one transaction that stored something for good.
create table raw.settle (
  seq bigint not null,
  -- walk | look (webhooks) | replay | rates
  kind varchar not null,
  recorded_at timestamp not null,
  -- sha256 over the one before it, recorded_at and a digest of the rows stored; it stands for everything up to here
  history_id varchar not null,
  -- where the tape stood that says so: the chain of its outcome
  tape_head varchar not null
);

-- Answers of a deal's own page that held its property value and changed nothing, so that no version tells of them; no row
-- is ever updated.
create table raw.deal_confirmation (
  seq bigint not null,
  deal_id varchar not null,
  observed_at timestamp not null,
  business_date date not null,
  recorded_at timestamp not null
);

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
