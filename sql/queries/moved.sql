-- The totals of what moved beyond the {beyond} largest movements, and {limit} of those deals from the {offset}th on, each with
-- what happened to it in words.
with
largest as (
  select
    deal_id,
    open,
    funded,
    pipeline,
    concat_ws(
      ', ',
      case
        when coalesce(status_before, status_after) is null then null
        when status_before is null then 'came, ' || words(status_after)
        when status_after is null then 'is gone, was ' || words(status_before)
        when status_before <> status_after then words(status_before) || ' → ' || words(status_after)
      end,
      if(amount_before <> amount_after, usd(amount_before) || ' → ' || usd(amount_after), null),
      if(is_corrected, 'corrected later', null)
    ) as what,
    row_number() over (order by greatest(abs(open), abs(funded), abs(pipeline)) desc, deal_id) - 1 - {beyond} as place
  from ({moves})
  where open <> 0 or funded <> 0 or pipeline <> 0
)

select
  {
    'deals': count(*)::integer,
    'open': cast(coalesce(sum(open), 0) as decimal(38, 2)),
    'funded': cast(coalesce(sum(funded), 0) as decimal(38, 2)),
    'pipeline': cast(coalesce(sum(pipeline), 0) as decimal(38, 2))
  } as totals,
  coalesce(
    list({'deal_id': deal_id, 'open': open, 'funded': funded, 'pipeline': pipeline, 'what': what} order by place)
      filter (place >= {offset} and place < {offset} + {limit}),
    []
  ) as moved
from largest
where place >= 0
