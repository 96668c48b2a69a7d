-- Every entry of the journal, opening balances among them, as its two lines: one debit and one credit of the same amount.
-- grain: entry_id, line_no
-- per: deal_id
--
-- period: YYYY-MM
-- entry_id: LT, year and month, and a hash over what makes the entry: the same entry has the same id on every machine
-- line_no: 1 debit, 2 credit
-- entry_date: business date
-- event: opening, funding, increase, decrease, reversal, ended, reclass
-- account_code: account number by the mapping of the period; null if it names none
-- account_name: its name
-- debit: USD; null on a credit line
-- credit: USD; null on a debit line
-- memo: what happened to which deal, with its address in short and its program
-- deal_id: the service's id
-- loan_program: the program the receivable is booked under, on the credit line of a change of program the one it leaves; null
--   when unknown
-- term: the term of the roll-forward that it books; null when it is a reclass, which moves no total
with
entries as (
  select
    movement.period,
    movement.entry_date,
    movement.event,
    nullif(movement.term, 'reclass') as term,
    movement.debit_code,
    movement.debit_name,
    movement.credit_code,
    movement.credit_name,
    movement.amount,
    movement.deal_id,
    movement.loan_program,
    case when movement.term = 'reclass' then movement.previous_loan_program else movement.loan_program end as credit_loan_program,
    movement.observed_at,
    case movement.term
      when 'opening' then 'Opening balance'
      when 'found' then 'Opening balance, not readable before'
      when 'originated' then 'Funding'
      when 'refunded' then coalesce('Reversal of ' || movement.ending_before, 'Funding, again')
      when 'restored' then 'Funding, back in the source'
      when 'increased' then 'Increase'
      when 'decreased' then 'Decrease'
      when 'reversed' then 'Reversal'
      when 'vanished' then 'Reversal, gone from the source'
      when 'reclass' then 'Reclass from ' || coalesce(movement.previous_loan_program, 'no program')
      when 'paid_off' then 'Payoff'
      when 'sold' then 'Sale'
      when 'refinanced' then 'Refinancing'
      when 'foreclosed' then 'Foreclosure'
      when 'charged_off' then 'Charge-off'
      when 'ended_other' then 'End of loan'
    end as label,
    -- Searching for something to replace costs a sixth of replacing it.
    case
      when regexp_matches(version.property_address, '\s\s|[^\S ]|^ | $')
        then trim(regexp_replace(version.property_address, '\s+', ' ', 'g'))
      else version.property_address
    end as address,
    left(array_to_string(string_split(address, ',')[:2], ','), 60) as short_address
  from work.booked_movement as movement
  inner join core.deal_history as version on version.deal_id = movement.deal_id and version.version = movement.version
  union all by name
  select
    period,
    cast(period || '-01' as date) as entry_date,
    'reclass' as event,
    null as term,
    debit_code,
    debit_name,
    credit_code,
    credit_name,
    amount,
    deal_id,
    loan_program,
    loan_program as credit_loan_program,
    null as observed_at,
    'Reclass from account ' || coalesce(credit_code, '?') as label,
    null as short_address
  from work.moved_balance
),

named as (
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
  named.period,
  named.entry_id,
  cast(side.line_no as bigint) as line_no,
  named.entry_date,
  named.event,
  case when side.line_no = 1 then named.debit_code else named.credit_code end as account_code,
  case when side.line_no = 1 then named.debit_name else named.credit_name end as account_name,
  cast(case when side.line_no = 1 then named.amount end as decimal(18, 2)) as debit,
  cast(case when side.line_no = 2 then named.amount end as decimal(18, 2)) as credit,
  named.memo,
  named.deal_id,
  case when side.line_no = 1 then named.loan_program else named.credit_loan_program end as loan_program,
  named.term
from named
cross join (values (1), (2)) as side(line_no)
