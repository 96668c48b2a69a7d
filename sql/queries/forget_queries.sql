delete from page_action
where action_id in (
  select action_id
  from (
    select
      action_id,
      row_number() over (partition by who order by action_id desc) as place,
      row_number() over (order by action_id desc) as place_of_all
    from page_action
    where command = 'sql'
  )
  where place > ? or place_of_all > ?
)
