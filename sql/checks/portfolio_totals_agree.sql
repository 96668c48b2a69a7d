-- Count and amount of core.deal, mart.portfolio_summary, each dimension of mart.portfolio_breakdown and the last day of
-- mart.position_daily are the same, for all, open, ended and funded deals; open and ended deals add up to all.
-- severity: error
with
deals as (
  select
    count(*) as deals,
    coalesce(sum(loan_amount), 0) as amount,
    count(*) filter (where status_class in ('pipeline', 'funded', 'unclassified')) as open_deals,
    coalesce(sum(loan_amount) filter (where status_class in ('pipeline', 'funded', 'unclassified')), 0) as open_amount,
    count(*) filter (where status_class in ('ended_funded', 'ended_unfunded')) as ended_deals,
    coalesce(sum(loan_amount) filter (where status_class in ('ended_funded', 'ended_unfunded')), 0) as ended_amount,
    count(*) filter (where status_class = 'funded') as funded_deals,
    coalesce(sum(loan_amount) filter (where status_class = 'funded'), 0) as funded_amount
  from core.deal
),

dimensions as (
  select unnest(['status', 'loan_program', 'state', 'size_band', 'ltv_band', 'created_month']) as dimension
),

positions as (
  select
    position.deals,
    position.amount,
    coalesce(status.class, 'unclassified') as status_class
  from mart.position_daily as position
  left join seed.status on status.status = position.status
  where position.day = cast(getvariable('as_of') as date)
),

totals as (
  select
    'core.deal' as total,
    open_deals + ended_deals as deals,
    open_amount + ended_amount as amount,
    open_deals,
    open_amount,
    ended_deals,
    ended_amount,
    funded_deals,
    funded_amount
  from deals
  union all
  select
    'mart.portfolio_summary' as total,
    deals,
    amount,
    open_deals,
    open_amount,
    ended_deals,
    ended_amount,
    funded_deals,
    funded_amount
  from mart.portfolio_summary
  union all
  select
    'mart.portfolio_breakdown ' || dimensions.dimension as total,
    coalesce(sum(breakdown.deals), 0) as deals,
    coalesce(sum(breakdown.amount), 0) as amount,
    coalesce(sum(breakdown.open_deals), 0) as open_deals,
    coalesce(sum(breakdown.open_amount), 0) as open_amount,
    coalesce(sum(breakdown.ended_deals), 0) as ended_deals,
    coalesce(sum(breakdown.ended_amount), 0) as ended_amount,
    coalesce(sum(breakdown.funded_deals), 0) as funded_deals,
    coalesce(sum(breakdown.funded_amount), 0) as funded_amount
  from dimensions
  left join mart.portfolio_breakdown as breakdown on breakdown.dimension = dimensions.dimension
  group by dimensions.dimension
  union all
  select
    'mart.position_daily' as total,
    coalesce(sum(deals), 0) as deals,
    coalesce(sum(amount), 0) as amount,
    coalesce(sum(deals) filter (where not starts_with(status_class, 'ended')), 0) as open_deals,
    coalesce(sum(amount) filter (where not starts_with(status_class, 'ended')), 0) as open_amount,
    coalesce(sum(deals) filter (where starts_with(status_class, 'ended')), 0) as ended_deals,
    coalesce(sum(amount) filter (where starts_with(status_class, 'ended')), 0) as ended_amount,
    coalesce(sum(deals) filter (where status_class = 'funded'), 0) as funded_deals,
    coalesce(sum(amount) filter (where status_class = 'funded'), 0) as funded_amount
  from positions
)

select
  totals.total,
  totals.deals,
  deals.deals as expected_deals,
  totals.amount,
  deals.amount as expected_amount,
  totals.open_deals,
  deals.open_deals as expected_open_deals,
  totals.open_amount,
  deals.open_amount as expected_open_amount,
  totals.ended_deals,
  deals.ended_deals as expected_ended_deals,
  totals.ended_amount,
  deals.ended_amount as expected_ended_amount,
  totals.funded_deals,
  deals.funded_deals as expected_funded_deals,
  totals.funded_amount,
  deals.funded_amount as expected_funded_amount
from totals
cross join deals
where
  totals.deals <> deals.deals
  or totals.amount <> deals.amount
  or totals.open_deals <> deals.open_deals
  or totals.open_amount <> deals.open_amount
  or totals.ended_deals <> deals.ended_deals
  or totals.ended_amount <> deals.ended_amount
  or totals.funded_deals <> deals.funded_deals
  or totals.funded_amount <> deals.funded_amount
