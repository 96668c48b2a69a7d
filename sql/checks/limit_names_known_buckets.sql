-- Every limit of seed.limit is on statuses and programs that some deal ever had; statuses of seed.status are known, too.
-- severity: warn
-- next: Correct the spelling in seeds/limit.csv of LOANTAPE_SQL_DIR, statuses in lower case, unless such deals are still to come.
with
named as (
  select
    name,
    dimension,
    bucket as whole,
    trim(unnest(string_split(bucket, '|'))) as bucket
  from seed.limit
  where dimension in ('status', 'loan_program')
),

known as (
  select
    'status' as dimension,
    status as bucket
  from seed.status
  union all
  select
    'status' as dimension,
    status as bucket
  from core.deal_history
  union all
  select
    'loan_program' as dimension,
    coalesce(loan_program, 'unknown') as bucket
  from core.deal_history
)

select
  name,
  dimension,
  bucket
from named
anti join known using (dimension, bucket)
where (bucket <> '' or trim(whole, '| ') = '') and (dimension, whole) not in (select (dimension, bucket) from known)
