-- In the order of seed.status, every status of class pipeline comes before the first of class funded, and every one of class
-- ended_funded after it; otherwise deals that never were funded count as funded in mart.pipeline_funnel, or funded ones do not.
-- severity: error
-- next: Give each another sort_order in seeds/status.csv of LOANTAPE_SQL_DIR, or the class it belongs to, then run
--   `loantape build`: docs/analyst-guide.md#statuses.
with
bounds as (
  select min({'sort_order': sort_order, 'status': status}) as first_funded
  from seed.status
  where class = 'funded'
)

select
  status.status,
  status.class,
  status.sort_order,
  format(
    '{} {} ({})',
    if(status.class = 'pipeline', 'below', 'above'),
    bounds.first_funded.sort_order,
    bounds.first_funded.status
  ) as expected
from seed.status
cross join bounds
where
  (status.class = 'pipeline' and status.sort_order >= bounds.first_funded.sort_order)
  or (status.class = 'ended_funded' and status.sort_order <= bounds.first_funded.sort_order)
