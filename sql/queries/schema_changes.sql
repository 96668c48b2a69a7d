-- What differs between the published tables of two releases. $1, the earlier one, and $2 are JSON:
-- [{name, contract, columns: [{name, type}]}], columns in order. A column has moved if it is in another place among those that
-- are in both, or behind a new one.
with
  released as (
    select
      1 as side,
      unnest(from_json(cast($1 as varchar), '[{"name": "varchar", "contract": "integer", "columns": [{"name": "varchar", "type": "varchar"}]}]'), max_depth := 2)
    union all
    select
      2,
      unnest(from_json(cast($2 as varchar), '[{"name": "varchar", "contract": "integer", "columns": [{"name": "varchar", "type": "varchar"}]}]'), max_depth := 2)
  ),

  tables as (
    select
      name as "table",
      min(contract) filter (side = 1) as contract_before,
      min(contract) filter (side = 2) as contract_after
    from released
    group by name
  ),

  columns as (
    select
      side,
      name as "table",
      unnest(columns).name as "column",
      unnest(columns).type as type,
      generate_subscripts(columns, 1) as place
    from released
  ),

  compared as (
    select
      "table",
      "column",
      was.type as before,
      now.type as after,
      was.place,
      now.place as place_after,
      row_number() over (partition by "table", was.type is null or now.type is null order by was.place) as place_among_both
    from (from columns where side = 1) as was
    full join (from columns where side = 2) as now using ("table", "column")
  ),

  changes as (
    select
      *,
      case
        when before is null then 'came'
        when after is null then 'went'
        when before <> after then 'type'
        else 'order'
      end as change
    from compared
    join tables using ("table")
    where contract_before is not null
      and contract_after is not null
      and (before is distinct from after or place_among_both <> place_after)
    union all by name
    select
      *,
      case when contract_before is null then 'came' else 'went' end as change
    from tables
    where contract_before is null or contract_after is null
  )

select
  "table",
  "column",
  change,
  before,
  after,
  contract_before,
  contract_after,
  change <> 'came' and coalesce(contract_after <= contract_before, true) as is_breaking
from changes
order by "table", place nulls last, place_after
