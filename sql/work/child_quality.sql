-- What mart.data_quality says of borrowers and documents; no rows for a stream of which no list was ever read.
-- grain: scope, metric, field, found
--
-- scope: borrowers or documents
-- metric: as in mart.data_quality
-- field: as there
-- found: as there
-- part: what is counted
-- whole: what it is a share of
-- deals: deals or records concerned
with
deals as (
  select count(*) as deals
  from core.deal
),

listed as (
  select
    listed.stream,
    count(*) as deals,
    sum(listed.records) as records,
    sum(listed.quarantined) as quarantined
  from work.listed_deal as listed
  inner join core.deal as deal on deal.deal_id = listed.deal_id
  group by listed.stream
),

kept as (
  select
    'borrower' as stream,
    count(*) as records,
    count(*) filter (where is_missing) as missing
  from core.borrower
  union all
  select
    'document' as stream,
    count(*) as records,
    count(*) filter (where is_missing) as missing
  from core.document
),

fields as (
  select
    'borrower' as stream,
    'email_hash' as field,
    count(email_hash) as known
  from core.borrower
  union all
  select
    'borrower' as stream,
    'linked_at' as field,
    count(linked_at) as known
  from core.borrower
  union all
  select
    'document' as stream,
    'category' as field,
    count(*) filter (where category <> 'unknown') as known
  from core.document
  union all
  select
    'document' as stream,
    'uploaded_at' as field,
    count(uploaded_at) as known
  from core.document
),

measured as (
  select
    listed.stream,
    'coverage' as metric,
    null as field,
    null as found,
    listed.deals as part,
    deals.deals as whole,
    deals.deals - listed.deals as deals
  from listed
  cross join deals
  union all
  select
    listed.stream,
    'coverage' as metric,
    fields.field,
    null as found,
    fields.known as part,
    kept.records as whole,
    kept.records - fields.known as deals
  from listed
  inner join kept on kept.stream = listed.stream
  inner join fields on fields.stream = listed.stream
  union all
  select
    listed.stream,
    'missing' as metric,
    null as field,
    null as found,
    kept.missing as part,
    kept.records as whole,
    kept.missing as deals
  from listed
  inner join kept on kept.stream = listed.stream
  union all
  select
    listed.stream,
    'quarantined' as metric,
    null as field,
    null as found,
    listed.quarantined as part,
    listed.records as whole,
    listed.quarantined as deals
  from listed
  union all
  select
    stream,
    concat('drift_', kind) as metric,
    path as field,
    value as found,
    records as part,
    whole,
    records as deals
  from work.source_drift
  where stream <> 'deal'
)

select
  concat(stream, 's') as scope,
  metric,
  field,
  found,
  cast(part as bigint) as part,
  cast(whole as bigint) as whole,
  cast(deals as bigint) as deals
from measured
