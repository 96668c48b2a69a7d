-- Count and amount of core.deal, mart.portfolio_summary, each dimension of mart.portfolio_breakdown and the last day of
-- mart.position_daily are the same; so are the funded ones.
-- severity: error
with
deals as (
  select
    count(*) as deals,
    coalesce(sum(loan_amount), 0) as amount,
    count(*) filter (where status_class = 'funded') as funded_deals,
    coalesce(sum(loan_amount) filter (where status_class = 'funded'), 0) as funded_amount
  from core.deal
),

dimensions as (
  select unnest(['status', 'loan_program', 'state', 'size_band', 'ltv_band', 'created_month']) as dimension
),

totals as (
  select
    'mart.portfolio_summary' as total,
    deals,
    amount,
    funded_deals,
    funded_amount
  from mart.portfolio_summary
  union all
  select
    'mart.portfolio_breakdown ' || dimensions.dimension as total,
    coalesce(sum(breakdown.deals), 0) as deals,
    coalesce(sum(breakdown.amount), 0) as amount,
    coalesce(sum(breakdown.funded_deals), 0) as funded_deals,
    coalesce(sum(breakdown.funded_amount), 0) as funded_amount
  from dimensions
  left join mart.portfolio_breakdown as breakdown on breakdown.dimension = dimensions.dimension
  group by dimensions.dimension
  union all
  select
    'mart.position_daily' as total,
    coalesce(sum(position.deals), 0) as deals,
    coalesce(sum(position.amount), 0) as amount,
    coalesce(sum(position.deals) filter (where status.class = 'funded'), 0) as funded_deals,
    coalesce(sum(position.amount) filter (where status.class = 'funded'), 0) as funded_amount
  from mart.position_daily as position
  left join seed.status on status.status = position.status
  where position.day = cast(getvariable('as_of') as date)
)

select
  totals.total,
  totals.deals,
  deals.deals as expected_deals,
  totals.amount,
  deals.amount as expected_amount,
  totals.funded_deals,
  deals.funded_deals as expected_funded_deals,
  totals.funded_amount,
  deals.funded_amount as expected_funded_amount
from totals
cross join deals
where
  totals.deals <> deals.deals
  or totals.amount <> deals.amount
  or totals.funded_deals <> deals.funded_deals
  or totals.funded_amount <> deals.funded_amount
