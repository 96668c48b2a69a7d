-- What the history is made of: one row per settle, which is one transaction that stored something for good.
create table raw.settle (
  seq bigint not null,
  -- walk | look (webhooks) | replay | rates | earlier (stored before there was this table)
  kind varchar not null,
  recorded_at timestamp not null,
  -- sha256 over the one before it, recorded_at and a digest of the rows stored; it stands for everything up to here
  history_id varchar not null
);

insert into raw.settle
with stored as (
  select recorded_at, hash(version) as digest from raw.deal_version as version
  union all
  select recorded_at, hash(version) as digest from raw.borrower_version as version
  union all
  select recorded_at, hash(version) as digest from raw.document_version as version
  union all
  select recorded_at, hash(rate) as digest from raw.rate as rate
  union all
  select recorded_at, hash(walk_id, stream, records, amount_total, cursor_digest) as digest
  from raw.walk
  where recorded_at is not null
),

moments as (
  select
    recorded_at,
    count(*) as records,
    bit_xor(digest) as digest
  from stored
  group by recorded_at
)

select
  row_number() over (order by recorded_at) as seq,
  'earlier' as kind,
  recorded_at,
  sha256(concat_ws(' ', epoch_us(recorded_at), sum(records) over so_far, bit_xor(digest) over so_far)) as history_id
from moments
window so_far as (order by recorded_at)
order by recorded_at;
