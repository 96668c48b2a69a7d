-- The movements of the funded book as amounts from one account to another, under the mapping of their month. Endings that the
-- mapping books elsewhere and what takes them back are left out, and so are changes of program within one account.
-- grain: deal_id, version, term
-- per: deal_id
--
-- deal_id: the service's id
-- version: the version of core.deal_history that moved it
-- term: as in work.funded_movement
-- event: opening, funding, increase, decrease, reversal, ended, reclass; of a program learned after the opening: opening
-- period: YYYY-MM of the business date
-- entry_date: business date; for a funding its funded_on if that is in the same month, else the nearest day that is; the
--   business date if funded_on is not known
-- observed_at: start of the request that showed it, UTC
-- loan_program: the program the receivable is booked under; null when unknown
-- previous_loan_program: of a reclass, the program it leaves; null when unknown
-- ending_before: as in work.funded_movement
-- debit_code: account number; null if the mapping names no account
-- debit_name: its name
-- credit_code: account number; null if the mapping names no account
-- credit_name: its name
-- amount: USD, positive
with
movements as (
  select
    movement.*,
    version.since,
    -- What was booked is taken back from the same account.
    of_ending.since as other_since,
    -- What leaves the book leaves the account it was booked to.
    case
      when movement.event in ('reversal', 'ended') then movement.previous_loan_program
      else movement.loan_program
    end as booked_program,
    case
      when movement.event = 'ended' then 'ended ' || movement.term
      when movement.event = 'opening' then 'opening'
      else coalesce('ended ' || movement.ending_before, 'clearing')
    end as books,
    cast(movement.month || '-01' as date) as first_day
  from work.funded_movement as movement
  inner join work.mapping_version as version on movement.month >= version.since and movement.month < version.until
  inner join work.mapping_version as of_ending
    on
      coalesce(movement.ending_month, movement.month) >= of_ending.since
      and coalesce(movement.ending_month, movement.month) < of_ending.until
  where movement.amount > 0
),

others as (
  select
    since,
    case when role in ('ended', 'elsewhere') then 'ended ' || term else role end as books,
    account_code,
    account_name,
    role
  from seed.account
),

accounts as (
  select
    movements.*,
    movements.event in ('opening', 'funding', 'increase', 'reclass') as adds,
    coalesce(other.role = 'elsewhere', false) as is_elsewhere,
    receivable.code as receivable_code,
    receivable.name as receivable_name,
    case when movements.term = 'reclass' then previous.code else other.account_code end as other_code,
    case when movements.term = 'reclass' then previous.name else other.account_name end as other_name
  from movements
  inner join work.receivable_account as receivable
    on
      receivable.since = movements.since
      and receivable.loan_program is not distinct from movements.booked_program
  inner join work.receivable_account as previous
    on
      previous.since = movements.since
      and previous.loan_program is not distinct from
      case when movements.term = 'reclass' then movements.previous_loan_program else movements.booked_program end
  left join others as other on other.since = movements.other_since and other.books = movements.books
)

select
  deal_id,
  version,
  term,
  case when is_learned then 'opening' else event end as event,
  month as period,
  case
    when term in ('originated', 'refunded') then least(greatest(coalesce(funded_on, business_date), first_day), last_day(first_day))
    else business_date
  end as entry_date,
  observed_at,
  booked_program as loan_program,
  case when term = 'reclass' then previous_loan_program end as previous_loan_program,
  ending_before,
  case when adds then receivable_code else other_code end as debit_code,
  case when adds then receivable_name else other_name end as debit_name,
  case when adds then other_code else receivable_code end as credit_code,
  case when adds then other_name else receivable_name end as credit_name,
  amount
from accounts
where
  not is_elsewhere
  and (term <> 'reclass' or receivable_code is distinct from other_code)
