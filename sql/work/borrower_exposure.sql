-- What each borrower owes: every open deal counts once, with its primary borrower. Empty if no borrower is known.
-- grain: bucket
--
-- bucket: the person, or the deal itself if it has no known borrower
-- person: null for a deal without a known borrower
-- open_amount: sum of its open deals, USD
-- funded_deals: of these, funded ones
-- funded_amount: their sum, USD
with
primary_borrower as (
  select
    deal_id,
    person
  from core.borrower
  where is_primary
)

select
  coalesce('person ' || borrower.person, 'deal ' || deal.deal_id) as bucket,
  borrower.person,
  sum(deal.loan_amount) as open_amount,
  count(*) filter (where deal.status_class = 'funded') as funded_deals,
  coalesce(sum(deal.loan_amount) filter (where deal.status_class = 'funded'), 0) as funded_amount
from core.deal as deal
left join primary_borrower as borrower on borrower.deal_id = deal.deal_id
where exists (select 1 from primary_borrower) and deal.status_class not in ('ended_funded', 'ended_unfunded')
group by
  bucket,
  borrower.person
