-- Borrowers linked to the present deals, as last known; empty unless LOANTAPE_STREAMS names borrowers. A person is a
-- keyed hash, without name or address.
-- grain: deal_id, borrower_id
-- per: deal_id
-- check: unique(deal_id, borrower_id)
-- check: not_null(deal_id, borrower_id, person, is_primary, first_seen_at, is_missing)
-- check: references(deal_id, core.deal.deal_id)
--
-- deal_id: the service's id
-- borrower_id: the service's id
-- person: the same for the same person in every deal: email_hash, or deal_id/borrower_id without an e-mail address
-- email_hash: HMAC-SHA256 of the e-mail address in lower case, under the key of this data folder; null when unknown
-- is_primary: the first borrower linked to the deal, who stands for it in mart.concentration
-- linked_at: as the service has it, UTC; null when unknown
-- first_seen_at: start of the request that first showed it, UTC
-- is_missing: absent when the deal's borrowers were last listed, not yet confirmed gone
with
known as (
  select
    *,
    min(observed_at) over (partition by deal_id, borrower_id) as first_seen_at,
    row_number() over (partition by deal_id, borrower_id order by observed_at desc, seq desc) as recency
  from raw.borrower_version
  where
    business_date <= cast(getvariable('as_of') as date)
    and recorded_at <= cast(getvariable('known_at') as timestamp)
)

select
  known.deal_id,
  known.borrower_id,
  coalesce(known.email_hash, known.link_id) as person,
  known.email_hash,
  row_number() over (
    partition by known.deal_id order by known.created_at nulls last, known.borrower_id
  ) = 1 as is_primary,
  known.created_at as linked_at,
  known.first_seen_at,
  known.kind = 'missing' as is_missing
from known
inner join core.deal as deal on deal.deal_id = known.deal_id
where known.recency = 1 and known.kind <> 'vanished'
