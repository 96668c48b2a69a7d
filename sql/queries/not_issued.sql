-- What the journal of a release and the entries issued to profiles do not have in common on any day from $2 on, by profile and
-- month. $1 is a list of profiles, each with whether opening balances belong to it; the table issued holds every issue of an entry
-- to one of them.
with
profile as (
  select unnest(from_json($1, '[{"profile": "varchar", "with_opening": "boolean"}]'), recursive := true)
),

journal as (
  select profile, entry_id, period, entry_date, debit as amount
  from accounting.journal_line
  cross join profile
  where line_no = 1
  union all
  select profile, entry_id, period, entry_date, debit
  from accounting.opening_line
  cross join profile
  where line_no = 1 and with_opening
),

-- Taken back by a true-up on a later day than otherwise: only what changes before that day brings it forward.
deferred as (
  select profile, entry_id
  from issued
  where entry_id in (select entry_id from issued where event = 'true-up')
  group by profile, entry_id
  having arg_max(event, cast(issue_no as bigint)) = 'true-up'
),

booking as (
  select profile, entry_id, period, cast(entry_date as varchar) as entry_date, amount, 1 as times
  from journal
  where exists (from issued)
  union all
  select profile, entry_id, period, entry_date, amount, if(cast(issue_no as bigint) % 2 = 0, -1, 1)
  from issued
),

changed as (
  select profile, entry_id, any_value(period) as period, any_value(amount) as amount
  from booking
  group by profile, entry_id, if((profile, entry_id) in (from deferred), $2, greatest(entry_date, $2))
  having sum(times) <> 0
),

-- As long as nothing is issued, nothing has to be compared.
open as (
  select profile, period, amount
  from journal
  where not exists (from issued)
  union all
  select profile, any_value(period), any_value(amount)
  from changed
  group by profile, entry_id
)

select profile, period, count(*) as entries, cast(sum(amount) as decimal(38, 2)) as amount
from open
group by profile, period
order by profile, period
