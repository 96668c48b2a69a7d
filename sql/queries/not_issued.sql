-- What the journal of a release and the entries issued to profiles do not have in common, by profile and month. $1 is a list of
-- profiles, each with whether opening balances belong to it; the table issued holds every issue of an entry to one of them.
with
profile as (
  select unnest(from_json($1, '[{"profile": "varchar", "with_opening": "boolean"}]'), recursive := true)
),

standing as (
  select profile, entry_id, any_value(period) as period, any_value(amount) as amount
  from issued
  group by profile, entry_id
  having max(cast(issue_no as bigint)) % 2 = 0
),

journal as (
  select profile, entry_id, period, debit as amount
  from accounting.journal_line
  cross join profile
  where line_no = 1
  union all
  select profile, entry_id, period, debit
  from accounting.opening_line
  cross join profile
  where line_no = 1 and with_opening
),

open as (
  select profile, period, amount
  from journal
  anti join standing using (profile, entry_id)
  union all
  select profile, period, amount
  from standing
  anti join journal using (profile, entry_id)
)

select profile, period, count(*) as entries, cast(sum(amount) as decimal(38, 2)) as amount
from open
group by profile, period
order by profile, period
