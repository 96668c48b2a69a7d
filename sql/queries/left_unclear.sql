-- Deals that left the funded book in a month of $1, a list, with a status that has no class; only those of the list $2 unless it is
-- null.
select deal_id, status, period
from (
  select
    *,
    lag(status_class) over versions as class_before,
    lag(loan_amount) over versions as amount_before,
    strftime(min(business_date) over (versions rows between current row and unbounded following), '%Y-%m') as period
  from core.deal_history
  where deal_id in (select deal_id from core.deal_history where status_class = 'unclassified')
  window versions as (partition by deal_id order by version)
)
where
  period in (select unnest(from_json($1, '["varchar"]')))
  and ($2 is null or deal_id in (select unnest(from_json($2, '["varchar"]'))))
  and status_class = 'unclassified'
  and change <> 'vanished'
  and class_before = 'funded'
  and amount_before > 0
order by period, deal_id, version
