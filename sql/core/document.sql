-- Documents of the present deals, as last known; empty unless LOANTAPE_STREAMS names documents. Their names, which often
-- name people, are not kept.
-- grain: deal_id, document_id
-- per: deal_id
-- check: unique(deal_id, document_id)
-- check: not_null(deal_id, document_id, category, first_seen_at, is_missing)
-- check: references(deal_id, core.deal.deal_id)
--
-- deal_id: the service's id
-- document_id: the service's id
-- category: as the service has it, such as appraisal; `unknown` if it has none or a blank one
-- uploaded_at: as the service has it, UTC; null when unknown
-- first_seen_at: start of the request that first showed it, UTC
-- is_missing: absent when the deal's documents were last listed, not yet confirmed gone
with
known as (
  select
    *,
    min(observed_at) over (partition by deal_id, document_id) as first_seen_at,
    row_number() over (partition by deal_id, document_id order by observed_at desc, seq desc) as recency
  from raw.document_version
  where
    business_date <= cast(getvariable('as_of') as date)
    and recorded_at <= cast(getvariable('known_at') as timestamp)
)

select
  known.deal_id,
  known.document_id,
  case when trim(known.category, e' \t\n\r') <> '' then known.category else 'unknown' end as category,
  known.created_at as uploaded_at,
  known.first_seen_at,
  known.kind = 'missing' as is_missing
from known
inner join core.deal as deal on deal.deal_id = known.deal_id
where known.recency = 1 and known.kind <> 'vanished'
