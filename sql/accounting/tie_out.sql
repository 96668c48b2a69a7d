-- The roll-forward against the journal: how much of each term is booked, and where the rest is. Terms without an amount have no
-- row; nor does an opening that is the closing of the month before, because it is no movement.
-- grain: month, term
-- order: month, term
-- adds_up: amount, booked, opening_balance, elsewhere, no_account
-- check: unique(month, term)
-- check: not_null(month, term, amount, booked, opening_balance, elsewhere, no_account, difference)
-- check: accepted(difference, 0.00)
--
-- month: YYYY-MM
-- term: a term of mart.funded_rollforward
-- amount: what the term comes to there; of opening, less the closing of the month before; USD
-- booked: its entries in accounting.journal_line that have both accounts, USD
-- opening_balance: its entries in accounting.opening_line that have both, booked only by `export … --with-opening`, USD
-- elsewhere: endings that accounting.json says another system books, and what takes them back; they have no entry; USD
-- no_account: its entries in both that lack an account, USD; until they have one, the month is neither exported nor closed
-- difference: amount − (booked + opening_balance + elsewhere + no_account), USD; always 0
with
terms as (
  unpivot (
    select * exclude (closing, difference) replace (
      cast(opening - coalesce(lag(closing) over (order by month), 0) as decimal(38, 2)) as opening
    )
    from mart.funded_rollforward
  ) on columns(* exclude (month)) into name term value amount
),

entries as (
  select
    period as month,
    term,
    event,
    entry_id,
    max(debit) as amount,
    count(account_code) = 2 as has_accounts
  from (
    from accounting.journal_line
    union all by name
    from accounting.opening_line
  )
  where term is not null
  group by
    period,
    term,
    event,
    entry_id
),

booked as (
  select
    month,
    term,
    sum(amount) filter (where has_accounts and event <> 'opening') as booked,
    sum(amount) filter (where has_accounts and event = 'opening') as opening_balance,
    sum(amount) filter (where not has_accounts) as no_account
  from entries
  group by
    month,
    term
),

elsewhere as (
  select
    movement.month,
    movement.term,
    sum(movement.amount) as elsewhere
  from work.funded_movement as movement
  inner join work.mapping_version as version
    on
      coalesce(movement.ending_month, movement.month) >= version.since
      and coalesce(movement.ending_month, movement.month) < version.until
  inner join seed.account as account
    on
      account.since = version.since
      and account.role = 'elsewhere'
      and account.term = coalesce(movement.ending_before, movement.term)
  group by
    movement.month,
    movement.term
),

amounts as (
  select
    month,
    term,
    coalesce(terms.amount, 0) as amount,
    coalesce(booked.booked, 0) as booked,
    coalesce(booked.opening_balance, 0) as opening_balance,
    coalesce(elsewhere.elsewhere, 0) as elsewhere,
    coalesce(booked.no_account, 0) as no_account
  from terms
  full join booked using (month, term)
  full join elsewhere using (month, term)
)

select
  month,
  term,
  cast(amount as decimal(38, 2)) as amount,
  cast(booked as decimal(38, 2)) as booked,
  cast(opening_balance as decimal(38, 2)) as opening_balance,
  cast(elsewhere as decimal(38, 2)) as elsewhere,
  cast(no_account as decimal(38, 2)) as no_account,
  cast(amount - (booked + opening_balance + elsewhere + no_account) as decimal(38, 2)) as difference
from amounts
where amount <> 0 or difference <> 0
