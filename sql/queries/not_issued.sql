-- What the journal of a release and the entries issued to profiles do not have in common, by profile and month. $1 is a list of
-- profiles, $2 one of the entries issued to each that stand. Opening balances count once a profile has got one.
with
profile as (
  select unnest(from_json($1, '["varchar"]')) as profile
),

standing as (
  select
    unnest(
      from_json(
        $2,
        '[{"profile": "varchar", "entry_id": "varchar", "period": "varchar", "event": "varchar", "amount": "decimal(18, 2)"}]'
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
  cross join (select distinct profile from standing where event = 'opening')
  where line_no = 1
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
