-- What figures can be compared with: days by their names, the day or release $1 of the address, and of the other kept releases $2,
-- a JSON list, the one that readers saw before; chosen is what the address names, else the day before or, where nothing is known of
-- that, the release before.
with
releases as (
  select *, is_before and row_number() over (order by is_before desc, known_at desc) = 1 as is_last
  from (
    select unnest(
      from_json($2, '[{"name": "varchar", "as_of": "varchar", "known_at": "varchar", "is_before": "boolean"}]'),
      recursive := true
    )
  )
),

days as (
  select
    name,
    cast(getvariable('as_of') as date) as today,
    case name
      when 'day' then today - 1
      when 'week' then today - 7
      when 'month' then cast(date_trunc('month', today) as date) - 1
      when 'year' then cast(today - interval 1 year as date)
      else if(length(name) = 10, try_cast(name as date), null)
    end as day
  from (select distinct unnest(['day', 'week', 'month', 'year', $1]) as name)
),

bases as (
  select
    name,
    case name
      when 'day' then 'day before'
      when 'week' then 'week before'
      when 'month' then 'month end'
      when 'year' then 'year before'
      else name
    end as title,
    coalesce(cast(day as varchar), 'release ' || name) as since,
    cast(day as varchar) as day,
    null as as_of,
    null as known_at,
    coalesce(
      day >= (select min(business_date) from mart.run where stream = 'deal' and is_complete) and day < today, false
    ) as is_known
  from days
  where name not in (select name from releases)
  union all
  select
    name,
    if(is_last, 'release before', name) as title,
    if(is_last, 'the release before', 'release ' || name) as since,
    null as day,
    as_of,
    known_at,
    true as is_known
  from releases
  where name = $1 or is_last
)

select
  *,
  name = case
    when $1 <> '' then $1
    when (select is_known from bases where name = 'day') then 'day'
    else (select name from bases where title = 'release before')
  end as is_chosen
from bases
where name <> '' and (is_known or name = $1)
order by day is null, day desc, name
