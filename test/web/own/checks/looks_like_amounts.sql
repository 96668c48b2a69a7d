-- Nothing is asked.
-- severity: warn
select '1200.10' as deal_id, '4100.20' as account_code, '12.50' as loan_program, 3.00::decimal(18, 2) as amount
