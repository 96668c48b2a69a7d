-- Lists of no applied walk in table 'raw.listing'
select
  walk_id,
  count(*) as lists
from listing
where walk_id not in (select walk_id from walk where state = 'applied')
group by walk_id
order by all
