-- First fundings by month and program: the `originated` of mart.funded_rollforward, to the cent. A deal that is funded again
-- after it had left is not an origination but `refunded`. Deals already funded at the first walk are in its opening, or `found`
-- if they could be read only later, and in no month here, because nobody knows when they were funded.
-- grain: month, loan_program
-- adds_up: deals, amount
-- check: unique(month, loan_program)
-- check: not_null(month, loan_program, deals, amount)
--
-- month: YYYY-MM of the business date on which the deal was funded for the first time
-- loan_program: as known when it was funded; `unknown` if it was not
-- deals: deals funded for the first time; a deal counts in one row, and a loan that was never seen as funded, such as one first
--   seen as sold after it was closing, in none
-- amount: their amounts when they were funded, USD
select
  month,
  coalesce(loan_program, 'unknown') as loan_program,
  count(*) as deals,
  cast(sum(amount) as decimal(38, 2)) as amount
from work.funded_movement
where term = 'originated'
group by all
