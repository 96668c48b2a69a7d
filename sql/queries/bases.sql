-- The days that figures can be compared with, by name, and whether anything is known of them; $1 is one that an address names.
select
  name,
  title,
  cast(day as varchar) as day,
  coalesce(day >= (select min(day) from mart.position_daily) and day < as_of, false) as is_known
from (
  select
    name,
    as_of,
    case name
      when 'day' then 'day before'
      when 'week' then 'week before'
      when 'month' then 'month end'
      when 'year' then 'year before'
      else name
    end as title,
    case name
      when 'day' then as_of - 1
      when 'week' then as_of - 7
      when 'month' then cast(date_trunc('month', as_of) as date) - 1
      when 'year' then cast(as_of - interval 1 year as date)
      else try_cast(name as date)
    end as day
  from (
    select distinct
      unnest(['day', 'week', 'month', 'year', $1]) as name,
      cast(getvariable('as_of') as date) as as_of
  )
)
where day is not null
order by title = name, day desc, name desc
