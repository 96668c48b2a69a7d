-- What `period remap` moves: the balance each deal has in an account that the new mapping no longer books its programs to, on
-- the first day of the new mapping's first period.
-- grain: period, deal_id, debit_code, credit_code
-- per: deal_id
--
-- period: YYYY-MM; the first of the new mapping
-- deal_id: the service's id
-- loan_program: of several whose balances move between the same accounts the first by name; null when unknown
-- debit_code: account number
-- debit_name: its name
-- credit_code: account number
-- credit_name: its name
-- amount: USD, positive
with
effects as (
  select
    deal_id,
    month,
    case
      when event in ('reversal', 'ended') then previous_loan_program
      else loan_program
    end as loan_program,
    case
      when event in ('opening', 'funding', 'increase', 'reclass') then amount
      else -amount
    end as amount
  from work.funded_movement
  union all
  select
    deal_id,
    month,
    previous_loan_program as loan_program,
    -amount as amount
  from work.funded_movement
  where term = 'reclass'
),

moves as (
  select
    since,
    lag(since, 1, '0000-00') over (order by since) as moved_before
  from work.mapping_version
  where moves_balances
),

-- An earlier move left everything before it under its own mapping.
standing as (
  select
    moves.since,
    effects.deal_id,
    effects.loan_program,
    greatest(version.since, moves.moved_before) as booked_since,
    sum(effects.amount) as balance
  from moves
  inner join effects on effects.month < moves.since
  inner join work.mapping_version as version on effects.month >= version.since and effects.month < version.until
  group by
    moves.since,
    effects.deal_id,
    effects.loan_program,
    booked_since
),

balances as (
  select
    standing.since,
    standing.deal_id,
    standing.loan_program,
    old.code as old_code,
    any_value(old.name) as old_name,
    new.code as new_code,
    any_value(new.name) as new_name,
    sum(standing.balance) as balance
  from standing
  inner join work.receivable_account as old
    on old.since = standing.booked_since and old.loan_program is not distinct from standing.loan_program
  inner join work.receivable_account as new
    on new.since = standing.since and new.loan_program is not distinct from standing.loan_program
  where old.code is distinct from new.code
  group by
    standing.since,
    standing.deal_id,
    standing.loan_program,
    old.code,
    new.code
)

select
  since as period,
  deal_id,
  min(loan_program) as loan_program,
  case when balance > 0 then new_code else old_code end as debit_code,
  any_value(case when balance > 0 then new_name else old_name end) as debit_name,
  case when balance > 0 then old_code else new_code end as credit_code,
  any_value(case when balance > 0 then old_name else new_name end) as credit_name,
  cast(sum(abs(balance)) as decimal(18, 2)) as amount
from balances
where balance <> 0
group by
  period,
  deal_id,
  debit_code,
  credit_code
