-- Numbers that are not 1, 2, … of table 'raw.rate'
select seq, count(*) as copies from rate group by seq having count(*) > 1
union all
select max(seq), count(*) from rate having max(seq) <> count(distinct seq) or min(seq) <> 1
order by all
