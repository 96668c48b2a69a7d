-- The 25 largest funded deals, and the 25 borrowers with the largest funded amounts.
-- grain: dimension, rank
-- check: unique(dimension, rank)
-- check: not_null(dimension, rank, deals, loan_amount)
-- check: accepted(dimension, deal, borrower)
-- check: references(deal_id, core.deal.deal_id)
--
-- dimension: deal, or borrower; there are no rows of borrowers if none is known
-- rank: from 1, by loan_amount, largest first, then by deal_id or person
-- deal_id: the service's id; null if dimension is borrower
-- person: as in core.borrower: for a deal its primary borrower; null when unknown
-- property_address: free text, as the service has it; null if it has none or dimension is borrower
-- loan_program: null when unknown, or if dimension is borrower
-- deals: funded deals: 1, or those of the borrower
-- loan_amount: their sum, USD
-- share_pct: share of the whole funded amount, in percent; null when that is zero
with
largest_deals as (
  select *
  from core.deal
  where status_class = 'funded'
  order by
    loan_amount desc,
    deal_id
  limit 25
),

exposures as (
  select
    'deal' as dimension,
    deal.deal_id,
    borrower.person,
    deal.property_address,
    deal.loan_program,
    1 as deals,
    cast(deal.loan_amount as decimal(38, 2)) as loan_amount,
    deal.deal_id as tie
  from largest_deals as deal
  left join core.borrower as borrower on borrower.deal_id = deal.deal_id and borrower.is_primary
  union all
  select
    'borrower' as dimension,
    null as deal_id,
    person,
    null as property_address,
    null as loan_program,
    funded_deals as deals,
    funded_amount as loan_amount,
    person as tie
  from work.borrower_exposure
  where person is not null and funded_deals > 0
)

select
  exposures.dimension,
  row_number() over (
    partition by exposures.dimension order by exposures.loan_amount desc, exposures.tie
  ) as rank,
  exposures.deal_id,
  exposures.person,
  exposures.property_address,
  exposures.loan_program,
  cast(exposures.deals as bigint) as deals,
  exposures.loan_amount,
  round(exposures.loan_amount / nullif(summary.funded_amount, 0) * 100, 6) as share_pct
from exposures
cross join mart.portfolio_summary as summary
qualify rank <= 25
