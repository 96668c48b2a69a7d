-- The buckets that the form of a filter offers: of each dimension those of most deals.
select dimension, bucket
from mart.portfolio_breakdown
where dimension <> 'created_month' and not regexp_matches(bucket, '[\r\n]')
qualify row_number() over (partition by dimension order by open_deals desc, deals desc, bucket) <= 30
order by dimension, sort_order
