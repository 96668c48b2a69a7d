-- The fields that fields.json maps, of each deal of core.deal: null if no record ever named them.
-- grain: deal_id
-- per: deal_id
-- check: unique(deal_id)
-- check: references(deal_id, core.deal.deal_id)
--
-- deal_id: the service's id
{described}
-- unreadable: the fields whose value did not fit their type, with commas between; null when there are none
select
  deal.deal_id,
  {latest},
  latest.unreadable
from core.deal as deal
left join core.deal_extra_history as latest on latest.deal_id = deal.deal_id and latest.valid_to is null
