-- Every status in use is listed in seed.status; one that is not counts in totals but in no class.
-- severity: warn
select
  status,
  count(*) as deals,
  sum(loan_amount) as amount
from core.deal
where status_class = 'unclassified'
group by status
