-- mart.top_exposure agrees with core.deal and mart.concentration: in the largest funded deal, the five and the ten largest, and
-- the number of funded deals up to 25; likewise in the largest borrower and the number of borrowers.
-- severity: error
with
top as (
  select
    count(*) as deals,
    max(loan_amount) as largest,
    max(share_pct) as largest_pct,
    sum(loan_amount) filter (where rank <= 5) as top_5,
    sum(loan_amount) filter (where rank <= 10) as top_10
  from mart.top_exposure
  where dimension = 'deal'
),

funded as (
  select
    count(*) as deals,
    max(loan_amount) as largest,
    nullif(sum(loan_amount), 0) as amount
  from core.deal
  where status_class = 'funded'
),

borrowers as (
  select
    borrower.person,
    sum(deal.loan_amount) as amount
  from core.deal as deal
  inner join core.borrower as borrower on borrower.deal_id = deal.deal_id and borrower.is_primary
  where deal.status_class = 'funded'
  group by borrower.person
),

owed as (
  select
    count(*) as persons,
    max(amount) as largest
  from borrowers
),

top_borrower as (
  select
    count(*) as persons,
    max(loan_amount) as largest,
    max(share_pct) as largest_pct
  from mart.top_exposure
  where dimension = 'borrower'
)

select
  'mart.top_exposure' as place,
  top.deals as found,
  least(funded.deals, 25) as expected,
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
  or round(top.top_5 / funded.amount * 100, 6) is distinct from concentration.funded_top_5_pct
  or round(top.top_10 / funded.amount * 100, 6) is distinct from concentration.funded_top_10_pct
union all
select
  'mart.top_exposure borrower' as place,
  top_borrower.persons as found,
  least(owed.persons, 25) as expected,
  top_borrower.largest,
  owed.largest as expected_largest,
  top_borrower.largest_pct,
  concentration.funded_top_1_pct as expected_pct
from top_borrower
cross join owed
left join mart.concentration as concentration on concentration.dimension = 'borrower'
where
  top_borrower.persons <> least(owed.persons, 25)
  or top_borrower.largest is distinct from owed.largest
  or top_borrower.largest_pct > concentration.funded_top_1_pct
