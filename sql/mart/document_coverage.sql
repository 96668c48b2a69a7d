-- Which present deals have their documents: those in underwriting without an appraisal are
-- `status = 'underwriting' and not has_appraisal`. Empty until documents have been listed (LOANTAPE_STREAMS).
-- grain: deal_id
-- check: unique(deal_id)
-- check: not_null(deal_id, status, status_class, loan_amount, status_since)
-- check: references(deal_id, core.deal.deal_id)
--
-- deal_id: the service's id
-- status: as in core.deal
-- status_class: pipeline, funded, ended_funded, ended_unfunded or unclassified
-- loan_amount: USD
-- status_since: as in core.deal
-- listed_at: when the deal's documents were last read to the end of their list, UTC; null when they never were
-- documents: known documents; null when they were never listed
-- has_appraisal: whether one of them is of category appraisal, compared as statuses are; null when unknown: they were never
--   listed, or part of the list could not be read and the rest has none
-- last_appraisal_at: when the latest appraisal was uploaded, UTC; null when that of none is known
with
documents as (
  select
    deal_id,
    count(*) as documents,
    bool_or(is_appraisal) as has_appraisal,
    max(uploaded_at) filter (where is_appraisal) as last_appraisal_at
  from (
    select
      deal_id,
      uploaded_at,
      lower(regexp_replace(category, '^[\s\x0b\p{Z}\x{feff}]+|[\s\x0b\p{Z}\x{feff}]+$', '', 'g')) = 'appraisal'
        as is_appraisal
    from core.document
  ) as document
  group by deal_id
),

listed as (
  select *
  from work.listed_deal
  where stream = 'document'
)

select
  deal.deal_id,
  deal.status,
  deal.status_class,
  deal.loan_amount,
  deal.status_since,
  listed.listed_at,
  case when listed.deal_id is not null then coalesce(documents.documents, 0) end as documents,
  case
    when documents.has_appraisal then true
    when listed.quarantined = 0 then false
  end as has_appraisal,
  documents.last_appraisal_at
from core.deal as deal
left join listed on listed.deal_id = deal.deal_id
left join documents on documents.deal_id = deal.deal_id
where exists (select 1 from listed)
