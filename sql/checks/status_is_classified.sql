-- Every status in use is listed in seed.status; a status that is not counts in totals but in no class.
-- severity: warn
-- next: Give each a line in seeds/status.csv of LOANTAPE_SQL_DIR, such as `ctc,clear_to_close` under `status,like`, then run
--   `loantape build`: docs/analyst-guide.md#statuses.
select
  status,
  count(*) as deals,
  sum(loan_amount) as amount
from core.deal
where status_class = 'unclassified'
group by status
