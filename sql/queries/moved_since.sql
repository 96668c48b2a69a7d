-- What moved since the end of the day $1, by deal.
select
  deal_id,
  first(status_before order by day) as status_before,
  last(status_after order by day) as status_after,
  first(amount_before order by day) as amount_before,
  last(amount_after order by day) as amount_after,
  sum(open) as open,
  sum(funded) as funded,
  sum(pipeline) as pipeline,
  false as is_corrected
from mart.movement
where day > cast($1 as date)
group by deal_id
