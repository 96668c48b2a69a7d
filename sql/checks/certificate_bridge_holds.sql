-- After the last applied walk, present deals = distinct records + kept in quarantine + kept missing + adjusted, in count and
-- amount; and if nothing was stored since, or before it for a later day, they equal core.deal.
-- severity: error
with
last_walk as (
  select *
  from mart.run
  where stream = 'deal'
  qualify recorded_at = max(recorded_at) over ()
),

bridged as (
  select
    walk_id,
    recorded_at,
    present_deals,
    present_amount,
    distinct_records + kept_quarantined_deals + kept_missing_deals + adjusted_deals as bridge_deals,
    amount_total + kept_quarantined_amount + kept_missing_amount + adjusted_amount as bridge_amount
  from last_walk
),

-- A crashed run's walk is applied by a later run; by then webhooks may have told of the day after.
apart as (
  select count(*) as versions
  from raw.deal_version
  where
    recorded_at <= cast(getvariable('known_at') as timestamp)
    and (recorded_at > (select recorded_at from last_walk)) = (business_date <= cast(getvariable('as_of') as date))
),

deals as (
  select
    count(*) as deals,
    coalesce(sum(loan_amount), 0) as amount
  from core.deal
)

select
  bridged.walk_id,
  bridged.present_deals,
  bridged.bridge_deals,
  bridged.present_amount,
  bridged.bridge_amount,
  apart.versions as versions_apart,
  deals.deals as core_deals,
  deals.amount as core_amount
from bridged
cross join apart
cross join deals
where
  bridged.present_deals is distinct from bridged.bridge_deals
  or bridged.present_amount is distinct from bridged.bridge_amount
  or (
    apart.versions = 0
    and (bridged.present_deals is distinct from deals.deals or bridged.present_amount is distinct from deals.amount)
  )
