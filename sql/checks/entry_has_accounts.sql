-- Every entry has its accounts in accounting.json; if a program or an ending has none, journals cannot be exported.
-- severity: warn
-- next: Name an account for each in accounting.json: docs/accounting.md.
select
  case
    when event = 'ended' and line_no = 1 then 'ending ' || term
    when event = 'funding' and line_no = 2 then 'ending that was taken back'
    else coalesce(loan_program, 'no program')
  end as place,
  count(distinct entry_id) as entries
from accounting.journal_line
where account_code is null
group by place
