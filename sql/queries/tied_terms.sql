-- How much of each term of the roll-forward of the month $1 is booked, and why the rest is not; in the order of the roll-forward.
select
  term,
  amount,
  booked,
  cast(opening_balance + elsewhere as decimal(38, 2)) as unbooked,
  case when opening_balance > 0 then 'opening balance' when elsewhere > 0 then 'booked elsewhere' end as because,
  difference
from accounting.tie_out
where month = $1
order by place_of_term(term)
