-- Every line of the journal, opening balances among them: each entry is one debit and one credit of the same amount.
-- Built for other models and not kept.
-- grain: entry_id, line_no
--
-- period: YYYY-MM
-- entry_id: LT, year and month, and a hash over what makes the entry: the same entry has the same id on every machine
-- line_no: 1 debit, 2 credit
-- entry_date: business date
-- event: opening, funding, increase, decrease, reversal, ended, reclass
-- account_code: account number; null where the mapping names no account
-- account_name: its name
-- debit: USD; null on a credit line
-- credit: USD; null on a debit line
-- memo: what happened to which deal, with its address in short and its program
-- deal_id: the service's id
-- loan_program: the program the receivable is booked under; null when unknown
with
entries as (
  select
    movement.period,
    movement.entry_date,
    movement.event,
    movement.debit_code,
    movement.debit_name,
    movement.credit_code,
    movement.credit_name,
    movement.amount,
    movement.deal_id,
    movement.loan_program,
    movement.observed_at,
    case movement.term
      when 'opening' then 'Opening balance'
      when 'originated' then 'Funding'
      when 'restored' then 'Funding, back in the source'
      when 'increased' then 'Increase'
      when 'decreased' then 'Decrease'
      when 'reversed' then 'Reversal'
      when 'vanished' then 'Reversal, gone from the source'
      when 'ended' then 'End of loan'
      when 'reclass' then 'Reclass from ' || coalesce(movement.previous_loan_program, 'no program')
    end as label,
    trim(regexp_replace(version.property_address, '\s+', ' ', 'g')) as address,
    left(array_to_string(string_split(address, ',')[:2], ','), 60) as short_address
  from work.booked_movement as movement
  inner join core.deal_history as version on version.deal_id = movement.deal_id and version.version = movement.version
  union all by name
  select
    period,
    cast(period || '-01' as date) as entry_date,
    'reclass' as event,
    debit_code,
    debit_name,
    credit_code,
    credit_name,
    amount,
    deal_id,
    loan_program,
    null as observed_at,
    'Reclass from account ' || coalesce(credit_code, '?') as label,
    null as short_address
  from work.moved_balance
),

identified as (
  select
    *,
    'LT' || strftime(entry_date, '%y%m') || '-' || left(
      sha256(
        to_json([
          deal_id,
          event,
          cast(entry_date as varchar),
          cast(observed_at as varchar),
          debit_code,
          credit_code,
          cast(amount as varchar)
        ])
      ),
      12
    ) as entry_id,
    concat(
      label,
      ' ',
      deal_id,
      case when short_address <> '' then ', ' || short_address end,
      ' (' || loan_program || ')'
    ) as memo
  from entries
)

select
  entry.period,
  entry.entry_id,
  cast(side.line_no as bigint) as line_no,
  entry.entry_date,
  entry.event,
  case when side.line_no = 1 then entry.debit_code else entry.credit_code end as account_code,
  case when side.line_no = 1 then entry.debit_name else entry.credit_name end as account_name,
  cast(case when side.line_no = 1 then entry.amount end as decimal(18, 2)) as debit,
  cast(case when side.line_no = 2 then entry.amount end as decimal(18, 2)) as credit,
  entry.memo,
  entry.deal_id,
  entry.loan_program
from identified as entry
cross join (values (1), (2)) as side(line_no)
