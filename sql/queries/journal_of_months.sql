-- The journal of the months of $1, a list, with opening balances; of the deals of $2, unless it is null.
select * exclude (period)
from (
  from accounting.journal_line
  union all
  from accounting.opening_line
)
where
  period in (select unnest(from_json($1, '["varchar"]')))
  and ($2 is null or deal_id in (select unnest(from_json($2, '["varchar"]'))))
order by entry_date, deal_id, entry_id, line_no
