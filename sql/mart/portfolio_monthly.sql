-- The open and the funded portfolio at the end of every month, by seven dimensions: each deal as it was that day, in the month of
-- its creation as last known. The buckets of a dimension add up to mart.position_daily of the day.
-- grain: dimension, bucket, month_end
-- order: dimension, sort_order, month_end
-- adds_up: open_deals, open_amount, funded_deals, funded_amount
-- check: unique(dimension, bucket, month_end)
-- check: not_null(month_end, dimension, bucket, sort_order, open_deals, open_amount, funded_deals, funded_amount)
-- check: accepted(dimension, status, status_class, loan_program, state, size_band, ltv_band, created_month)
--
-- month_end: the last day of the month, or as_of for the current one; the first month is that of the first walk
-- dimension: status, status_class, loan_program, state, size_band, ltv_band or created_month
-- bucket: as in mart.portfolio_breakdown; a bucket in which nothing was open that day has no row
-- sort_order: place of the bucket among those that the dimension ever had, the same in every month
-- open_deals: deals whose status was of class pipeline, funded or unclassified
-- open_amount: sum of loan_amount, USD
-- open_wa_ltv: loan-to-value weighted by amount, as a ratio, over open deals with an ltv of at
--   most 1.5; null when no amount has one
-- funded_deals: deals whose status was of class funded
-- funded_amount: their sum, USD
-- funded_wa_ltv: loan-to-value weighted by amount, as a ratio, over funded deals with an ltv of
--   at most 1.5; null when no amount has one
with
-- Deals of a bucket and class by their first and last month: few rows, however many deals there are. At the end of the last
-- month they no longer count.
stood as (
  select
    case
      when grouping(status) = 0 then 'status'
      when grouping(loan_program) = 0 then 'loan_program'
      when grouping(state) = 0 then 'state'
      when grouping(size_band) = 0 then 'size_band'
      when grouping(ltv_band) = 0 then 'ltv_band'
      when grouping(created_month) = 0 then 'created_month'
      else 'status_class'
    end as dimension,
    coalesce(status, loan_program, state, size_band, ltv_band, created_month, status_class) as bucket,
    status_class = 'funded' as is_funded,
    from_month,
    to_month,
    count(*) as deals,
    sum(loan_amount) as amount,
    sum(weighted_ltv) as weighted_ltv,
    sum(valued_amount) as valued_amount
  from (
    select
      *,
      last_day(from_day) as from_month,
      coalesce(last_day(to_day), date '9999-12-31') as to_month,
      cast(loan_amount as decimal(28, 2)) * averaged_ltv as weighted_ltv,
      case when averaged_ltv is not null then loan_amount end as valued_amount
    from work.deal_standing
    where is_open
  )
  group by grouping sets (
    (from_month, to_month, status_class),
    (from_month, to_month, status_class, status),
    (from_month, to_month, status_class, loan_program),
    (from_month, to_month, status_class, state),
    (from_month, to_month, status_class, size_band),
    (from_month, to_month, status_class, ltv_band),
    (from_month, to_month, status_class, created_month)
  )
),

monthly as (
  select
    month.to_day as month_end,
    stood.dimension,
    stood.bucket,
    sum(stood.deals) as open_deals,
    sum(stood.amount) as open_amount,
    sum(stood.weighted_ltv) as open_weighted,
    sum(stood.valued_amount) as open_valued,
    coalesce(sum(stood.deals) filter (where stood.is_funded), 0) as funded_deals,
    coalesce(sum(stood.amount) filter (where stood.is_funded), 0) as funded_amount,
    sum(stood.weighted_ltv) filter (where stood.is_funded) as funded_weighted,
    sum(stood.valued_amount) filter (where stood.is_funded) as funded_valued
  from stood
  inner join work.month as month
    on last_day(month.to_day) >= stood.from_month and last_day(month.to_day) < stood.to_month
  group by
    month.to_day,
    stood.dimension,
    stood.bucket
)

select
  monthly.month_end,
  monthly.dimension,
  monthly.bucket,
  dense_rank() over (
    partition by monthly.dimension
    order by rank.place nulls last, monthly.bucket = 'unknown', monthly.bucket
  ) as sort_order,
  cast(monthly.open_deals as bigint) as open_deals,
  cast(monthly.open_amount as decimal(38, 2)) as open_amount,
  round(monthly.open_weighted / nullif(monthly.open_valued, 0), 9) as open_wa_ltv,
  cast(monthly.funded_deals as bigint) as funded_deals,
  cast(monthly.funded_amount as decimal(38, 2)) as funded_amount,
  round(monthly.funded_weighted / nullif(monthly.funded_valued, 0), 9) as funded_wa_ltv
from monthly
left join work.bucket_rank as rank on rank.dimension = monthly.dimension and rank.bucket = monthly.bucket
