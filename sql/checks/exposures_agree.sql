-- mart.top_exposure lists the largest funded deals, and mart.concentration is of the same portfolio: the largest funded
-- deal, the largest deal, and the number of funded deals up to 25.
-- severity: error
with
top as (
  select
    count(*) as deals,
    max(loan_amount) as largest,
    max(share_pct) as largest_pct,
    count(*) filter (where rank > 25) as beyond
  from mart.top_exposure
),

funded as (
  select
    count(*) as deals,
    max(loan_amount) as largest
  from core.deal
  where status_class = 'funded'
)

select
  'mart.top_exposure' as place,
  top.deals,
  least(funded.deals, 25) as expected_deals,
  top.largest,
  funded.largest as expected_largest,
  top.largest_pct,
  concentration.funded_top_1_pct as expected_pct
from top
cross join funded
left join mart.concentration as concentration on concentration.dimension = 'deal'
where
  top.deals <> least(funded.deals, 25)
  or top.largest is distinct from funded.largest
  or top.largest_pct is distinct from concentration.funded_top_1_pct
