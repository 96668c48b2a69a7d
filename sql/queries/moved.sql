-- Deals that moved and what happened to each in words, the largest movement first.
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
  ) as what
from ({moves})
where open <> 0 or funded <> 0 or pipeline <> 0
order by greatest(abs(open), abs(funded), abs(pipeline)) desc, deal_id
