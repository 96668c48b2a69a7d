-- The totals of what moved beyond the {beyond} largest movements, and {limit} of those deals from the {offset}th on, each with
-- what happened to it in words.
with
moved as (
  select *
  from ({moves})
  where open <> 0 or funded <> 0 or pipeline <> 0
),

largest as (
  select *
  from moved
  order by {largest_first}
  limit {beyond}
),

totals as (
  select
    count(*) as deals,
    sum(open) as open,
    sum(funded) as funded,
    sum(pipeline) as pipeline
  from (
    from moved
    anti join largest using (deal_id)
  )
),

listed as (
  select
    deal_id,
    open,
    funded,
    pipeline,
    concat_ws(
      ', ',
      case
        when coalesce(status_before, status_after) is null then null
        when status_before is null then 'came as ' || words(status_after)
        when status_after is null then 'gone from ' || words(status_before)
        when status_before <> status_after then words(status_before) || ' → ' || words(status_after)
      end,
      if(amount_before <> amount_after, usd(amount_before) || ' → ' || usd(amount_after), null),
      if(is_corrected, 'corrected later', null)
    ) as what
  from (
    from moved
    order by {largest_first}
    limit {limit}
    offset {beyond} + least({offset}, (select greatest(deals - 1, 0) // {limit} * {limit} from totals))
  )
)

select
  {
    'deals': totals.deals::integer,
    'open': cast(coalesce(totals.open, 0) as decimal(38, 2)),
    'funded': cast(coalesce(totals.funded, 0) as decimal(38, 2)),
    'pipeline': cast(coalesce(totals.pipeline, 0) as decimal(38, 2))
  } as totals,
  coalesce(
    (
      select
        list({'deal_id': deal_id, 'open': open, 'funded': funded, 'pipeline': pipeline, 'what': what} order by {largest_first})
      from listed
    ),
    []
  ) as moved
from totals
