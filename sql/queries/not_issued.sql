-- What the journal of a release and the entries issued to profiles do not have in common, by profile and month. $1 is a list of
-- profiles, each with whether opening balances belong to it, $2 one of the entries issued to each that stand.
with
profile as (
  select unnest(from_json($1, '[{"profile": "varchar", "with_opening": "boolean"}]'), recursive := true)
),

standing as (
  select
    unnest(
      from_json(
        $2,
        '[{"profile": "varchar", "entry_id": "varchar", "period": "varchar", "amount": "decimal(18, 2)"}]'
      ),
      recursive := true
    )
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
  semi join profile using (profile)
  anti join journal using (profile, entry_id)
)

select profile, period, count(*) as entries, cast(sum(amount) as decimal(38, 2)) as amount
from open
group by profile, period
order by profile, period
