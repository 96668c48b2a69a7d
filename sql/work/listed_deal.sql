-- When the borrowers and the documents of each deal were last read to the end of their list, within as_of and known_at.
-- grain: stream, deal_id
-- per: deal_id
--
-- stream: borrower or document
-- deal_id: the service's id
-- listed_at: start of the request, UTC
-- records: records of that list
-- quarantined: records of that list that failed normalisation: it may hold more than was read
with
walks as (
  select
    walk_id,
    recorded_at
  from raw.walk
  where
    state = 'applied'
    and business_date <= cast(getvariable('as_of') as date)
    and recorded_at <= cast(getvariable('known_at') as timestamp)
)

select
  listing.stream,
  listing.parent_id as deal_id,
  max(listing.observed_at) as listed_at,
  arg_max(listing.records, walks.recorded_at) as records,
  arg_max(listing.quarantined, walks.recorded_at) as quarantined
from raw.listing as listing
inner join walks on walks.walk_id = listing.walk_id
where listing.outcome = 'listed'
group by
  listing.stream,
  listing.parent_id
