-- The deals behind the measure $2 of the part $1 of mart.portfolio_summary; for the median amount those in the middle.
select
  deal_id,
  status,
  loan_amount,
  property_value,
  ltv,
  last_changed_at
from core.deal
where
  case $1
    when 'open_' then status_class not in ('ended_funded', 'ended_unfunded')
    when 'ended_' then status_class in ('ended_funded', 'ended_unfunded')
    when 'pipeline_' then status_class = 'pipeline'
    when 'funded_' then status_class = 'funded'
    else true
  end
  and ($2 not in ('wa_ltv', 'pooled_ltv') or ltv <= 1.5)
qualify
  case $2
    when 'largest_amount' then loan_amount = max(loan_amount) over ()
    when 'median_amount' then
      row_number() over (order by loan_amount, deal_id) in ((count(*) over () + 1) // 2, (count(*) over () + 2) // 2)
    else true
  end
order by loan_amount desc, deal_id
