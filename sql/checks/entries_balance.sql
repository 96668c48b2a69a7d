-- Each entry of the journal is one debit and one credit of the same amount.
-- severity: error
-- per: deal_id
select
  entry_id,
  deal_id,
  sum(debit) as debit,
  sum(credit) as credit
from accounting.journal_line
group by
  entry_id,
  deal_id
having count(debit) <> 1 or count(credit) <> 1 or sum(debit) <> sum(credit)
