-- Answers of a deal's own page that held its property value and changed nothing, so that no version tells of them; no row
-- is ever updated.
create table raw.deal_confirmation (
  seq bigint not null,
  deal_id varchar not null,
  observed_at timestamp not null,
  business_date date not null,
  recorded_at timestamp not null
);
