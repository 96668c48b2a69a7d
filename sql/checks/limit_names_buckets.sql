-- Every limit of seed.limit is on buckets that exist: states, classes, bands and months, as mart.portfolio_monthly writes them.
-- severity: error
-- next: Correct seeds/limit.csv of LOANTAPE_SQL_DIR; a limit on a bucket that does not exist would always be kept. Bands are written
--   with an en dash, such as `80–85`, and months as `2026-03`.
with
named as (
  select
    name,
    dimension,
    bucket as whole,
    trim(unnest(string_split(bucket, '|'))) as bucket
  from seed.limit
),

existing as (
  select
    'state' as dimension,
    code as bucket
  from seed.us_state
  union all
  select
    'state' as dimension,
    'unknown' as bucket
  union all
  select
    'status_class' as dimension,
    unnest(['pipeline', 'funded', 'ended_funded', 'ended_unfunded', 'unclassified']) as bucket
  union all
  select
    'size_band' as dimension,
    unnest(['<250k', '250–500k', '500k–1m', '1–2.5m', '2.5–5m', '5–10m', '≥10m']) as bucket
  union all
  select
    'ltv_band' as dimension,
    unnest(['≤50', '50–60', '60–65', '65–70', '70–75', '75–80', '80–85', '85–90', '>90', 'unknown']) as bucket
  union all
  -- A lender's own model may have other bands.
  select
    dimension,
    bucket
  from mart.portfolio_monthly
)

select
  name,
  dimension,
  bucket
from named
anti join existing using (dimension, bucket)
where
  (bucket <> '' or trim(whole, '| ') = '')
  and case dimension
    when 'created_month' then not regexp_full_match(bucket, '\d{4}-(0[1-9]|1[0-2])')
    else dimension not in ('status', 'loan_program')
  end
