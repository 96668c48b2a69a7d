-- Every entry of the journal as its two lines, opening balances among them.
-- grain: entry_id, line_no
-- per: deal_id
--
-- period: YYYY-MM
-- entry_id: LT, year and month, and a hash over deal, event, date, observed_at, accounts and amount
-- line_no: 1 debit, 2 credit
-- entry_date: business date
-- event: opening, funding, reversal, increase, decrease, ended, reclass
-- account_code: account number by the mapping of the period
-- account_name: its name
-- debit: USD; null on a credit line
-- credit: USD; null on a debit line
-- memo: what happened to which deal
-- deal_id: the service's id
-- loan_program: the program whose receivable the line books, or that of the entry
-- term: the term of mart.funded_rollforward that it books; null when it is a reclass, which moves no total
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
  case when side.line_no = 1 then entry.loan_program else entry.credit_loan_program end as loan_program,
  entry.term
from work.journal_entry as entry
cross join (values (1), (2)) as side(line_no)
