-- Numbers that are not 1, 2, … of table 'raw.{name}_version'
select seq, count(*) as copies from {name}_version group by seq having count(*) > 1
union all
select max(seq), count(*) from {name}_version having max(seq) <> count(distinct seq) or min(seq) <> 1
order by all
