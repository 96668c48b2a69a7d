-- Every spell of a deal in a status as durations count it: the bounds of its start, the age from which on it was watched, and
-- how it ended. Going missing, or vanishing and coming back, neither ends a spell nor stops its days.
-- grain: deal_id, spell
-- per: deal_id
--
-- deal_id: the service's id
-- spell: as in work.status_spell
-- status: the status of the spell
-- is_current: no other status follows
-- status_since: as in core.deal, for every spell
-- status_since_is_exact: as in core.deal, for every spell
-- status_since_at_earliest: as in core.deal, for every spell
-- status_since_at_latest: as in core.deal, for every spell
-- started_on: the day that its duration counts from; null if nobody knows how long it had lasted when it was first seen
-- watched_from: the age in days from which on an end would have been seen: 0 if it was first seen on its first day, or on the
--   next and not by the first walk; else one more than the age at which it was first seen
-- ended_on: business date of the request that first showed the next status, or that the deal is gone; null while it lasts
-- exit: advance (to a status further on in seed.status), fallout (to one of class ended_unfunded), vanish, or other: back, or to a
--   status that seed.status does not list; null while it lasts
with
first_stage as (
  select min(sort_order) as first_order
  from seed.status
  where class = 'pipeline'
),

gone as (
  select
    deal_id,
    business_date as gone_on
  from core.deal_history
  where valid_to is null and change = 'vanished'
),

-- A deal is created in the first status of the pipeline; it can have entered any other at any time since.
bounded as (
  select
    spell.*,
    life.created_on,
    status.sort_order,
    coalesce(spell.spell = 1 and status.sort_order = first_stage.first_order, false) as is_from_creation,
    spell.began_on - life.created_on between 0 and 1 as was_just_created,
    coalesce(spell.began_on - spell.known_before <= 1, false) as was_watched,
    case
      when spell.spell > 1 then least(spell.known_before + 1, spell.began_on)
      when life.created_on <= spell.began_on then life.created_on
    end as earliest_on
  from work.status_spell as spell
  inner join work.deal_life as life on life.deal_id = spell.deal_id
  cross join first_stage
  left join seed.status as status on status.status = spell.status
)

select
  bounded.deal_id,
  bounded.spell,
  bounded.status,
  bounded.is_current,
  case
    when bounded.is_from_creation then least(bounded.created_on, bounded.began_on)
    else bounded.began_on
  end as status_since,
  bounded.was_watched
  and (bounded.spell > 1 or (bounded.is_from_creation and bounded.was_just_created)) as status_since_is_exact,
  case when status_since_is_exact then status_since else bounded.earliest_on end as status_since_at_earliest,
  case when status_since_is_exact then status_since else bounded.began_on end as status_since_at_latest,
  case
    when bounded.spell > 1 and bounded.was_watched then status_since
    when bounded.spell = 1 and (bounded.is_from_creation or (bounded.known_before is not null and bounded.was_just_created))
      then status_since
  end as started_on,
  case
    when bounded.began_on - status_since <= if(bounded.known_before is null, 0, 1) then 0
    else bounded.began_on - status_since + 1
  end as watched_from,
  coalesce(bounded.next_began_on, gone.gone_on) as ended_on,
  case
    when bounded.next_class = 'ended_unfunded' then 'fallout'
    when next.sort_order > bounded.sort_order then 'advance'
    when bounded.next_status is not null then 'other'
    when gone.gone_on is not null then 'vanish'
  end as exit
from bounded
left join gone on gone.deal_id = case when bounded.is_current then bounded.deal_id end
left join seed.status as next on next.status = bounded.next_status
