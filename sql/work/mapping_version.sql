-- The periods each account mapping holds for: a closed period keeps the one it was closed with.
-- grain: since
--
-- since: first period, YYYY-MM; 0000-00 for the first mapping
-- until: first period of the next mapping; 9999-99 for the last
-- moves_balances: whether what was booked before is moved to its accounts, on the first day of since
select
  since,
  lead(since, 1, '9999-99') over (order by since) as until,
  moves_balances
from (
  select distinct
    since,
    moves_balances
  from seed.account
)
