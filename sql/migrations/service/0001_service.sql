-- The tables of the local service; every list is ordered by `created_at` (ms since the epoch) and `id`.
create table if not exists deal (
  id text primary key,
  property_address text not null,
  loan_amount_cents integer not null,
  property_value_cents integer,
  loan_program text,
  status text not null,
  created_at integer not null
) strict;
create index if not exists deal_by_status on deal (status, created_at, id);

-- As the API shows it: dollars; an amount has so few cents that the quotient is the nearest number there is. `listed` is its row
-- of a list as JSON, which `deal_listed` holds ready: a page of 100 is read three times as fast as it could be written.
drop view if exists deal_record;
create view deal_record as
select
  id, property_address, loan_amount_cents / 100.0 as loan_amount, status, created_at,
  property_value_cents / 100.0 as property_value, loan_program,
  json_object(
    'id', id, 'property_address', property_address,
    'loan_amount', json((loan_amount_cents / 100) || rtrim(rtrim(printf('.%02d', loan_amount_cents % 100), '0'), '.')),
    'status', status, 'created_at', strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch')
  ) as listed
from deal;
create index if not exists deal_listed on deal (
  created_at, id,
  json_object(
    'id', id, 'property_address', property_address,
    'loan_amount', json((loan_amount_cents / 100) || rtrim(rtrim(printf('.%02d', loan_amount_cents % 100), '0'), '.')),
    'status', status, 'created_at', strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch')
  )
);

-- What the deals of each status add up to, kept by every change of a deal. The cents are in two parts, `high` being those of
-- 100,000,000: the sum of many large amounts fits into no integer.
create table if not exists deal_total (
  status text primary key,
  deals integer not null,
  high integer not null,
  low integer not null
) strict;
insert into deal_total
select status, count(*), sum(loan_amount_cents / 100000000), sum(loan_amount_cents % 100000000)
from deal
where not exists (select 1 from deal_total)
group by status;
-- What is inserted here is added to them: so many deals of a status, and their cents.
create view if not exists deal_step as select '' as status, 0 as deals, 0 as cents;
create trigger if not exists deal_stepped instead of insert on deal_step begin
  insert into deal_total values (new.status, new.deals, new.cents / 100000000, new.cents % 100000000)
  on conflict (status) do update set deals = deals + excluded.deals, high = high + excluded.high, low = low + excluded.low;
end;
create trigger if not exists deal_counted after insert on deal begin
  insert into deal_step values (new.status, 1, new.loan_amount_cents);
end;
create trigger if not exists deal_uncounted after delete on deal begin
  insert into deal_step values (old.status, -1, -old.loan_amount_cents);
end;
create trigger if not exists deal_recounted after update of status, loan_amount_cents on deal begin
  insert into deal_step values (old.status, -1, -old.loan_amount_cents), (new.status, 1, new.loan_amount_cents);
end;

create table if not exists borrower (
  id text primary key,
  deal_id text not null references deal (id) on delete cascade,
  first_name text not null,
  last_name text not null,
  email text not null,
  has_ssn_last_four integer not null,
  created_at integer not null
) strict;
create index if not exists borrower_by_deal on borrower (deal_id, created_at, id);

create table if not exists document (
  id text primary key,
  deal_id text not null references deal (id) on delete cascade,
  category text not null,
  name text not null,
  file_name text,
  media_type text not null,
  bytes integer not null,
  sha256 text not null,
  created_at integer not null
) strict;
create index if not exists document_by_deal on document (deal_id, created_at, id);

create table if not exists document_file (
  document_id text primary key references document (id) on delete cascade,
  content blob not null
) strict;

create table if not exists document_generation (
  id text primary key,
  deal_id text not null references deal (id) on delete cascade,
  template text not null,
  status text not null,
  document_id text,
  created_at integer not null,
  finished_at integer
) strict;
create index if not exists document_generation_by_deal on document_generation (deal_id, created_at, id);
create index if not exists document_generation_queued on document_generation (created_at, id) where status = 'queued';

create table if not exists task (
  id text primary key,
  deal_id text not null references deal (id) on delete cascade,
  title text not null,
  due_on text,
  status text not null,
  created_at integer not null,
  completed_at integer
) strict;
create index if not exists task_by_deal on task (deal_id, created_at, id);

create table if not exists rate (
  id text primary key,
  provider text not null,
  loan_program text not null,
  rate_pct_e4 integer not null,
  effective_at integer not null,
  created_at integer not null
) strict;
create index if not exists rate_by_created on rate (created_at, id);
create index if not exists rate_in_force on rate (provider, loan_program, effective_at, created_at, id);

create view if not exists rate_record as
select *, rate_pct_e4 / 10000.0 as rate_pct from rate;

create table if not exists webhook_endpoint (
  id text primary key,
  url text not null,
  events text not null,
  description text,
  status text not null,
  disabled_reason text,
  secret text not null,
  created_at integer not null
) strict;
create index if not exists webhook_endpoint_by_created on webhook_endpoint (created_at, id);

create table if not exists event (
  id text primary key,
  type text not null,
  payload text not null,
  created_at integer not null
) strict;

create table if not exists webhook_delivery (
  id text primary key,
  endpoint_id text not null references webhook_endpoint (id) on delete cascade,
  event_id text not null references event (id),
  status text not null,
  attempts integer not null,
  next_attempt_at integer,
  last_status integer,
  last_error text,
  created_at integer not null
) strict;
create index if not exists webhook_delivery_by_endpoint on webhook_delivery (endpoint_id, created_at, id);
create index if not exists webhook_delivery_next on webhook_delivery (endpoint_id, next_attempt_at, created_at, id)
where status = 'pending';
create index if not exists webhook_delivery_by_event on webhook_delivery (event_id);

create view if not exists webhook_delivery_record as
select webhook_delivery.*, event.type as event_type
from webhook_delivery
join event on event.id = webhook_delivery.event_id;

create table if not exists api_key (
  id text primary key,
  name text not null,
  prefix text not null,
  digest blob not null,
  scopes text not null,
  created_at integer not null,
  revoked_at integer
) strict;

create table if not exists idempotent_answer (
  owner text not null,
  key text not null,
  fingerprint text not null,
  status integer not null,
  headers text not null,
  body text not null,
  created_at integer not null,
  primary key (owner, key)
) strict;
create index if not exists idempotent_answer_by_created on idempotent_answer (created_at);
create index if not exists idempotent_answer_by_deal on idempotent_answer (body ->> '$.data.deal_id');
-- What belonged to a deal is not answered again; a request that made it once finds no deal.
create trigger if not exists deal_forgotten after delete on deal begin
  delete from idempotent_answer where body ->> '$.data.deal_id' = old.id;
end;

create table if not exists cursor_secret (
  only_row integer primary key check (only_row = 1),
  secret blob not null
) strict;
