-- Every program that is booked has an account in accounting.json; where one has none, journals cannot be exported.
-- severity: warn
select
  coalesce(loan_program, 'no program') as loan_program,
  count(distinct entry_id) as entries
from accounting.journal_line
where account_code is null
group by loan_program
