-- Every unbroken spell of a deal in the class funded, from status to status of it. Going missing, or vanishing and coming back,
-- does not break one.
-- grain: deal_id, spell
-- per: deal_id
--
-- deal_id: the service's id
-- spell: 1 for the deal's first funded spell
-- ended_on: business date of the request that first showed a status of another class; null while it lasts
-- known_before: last business date on which the deal was known not to be in it; null when nothing before it is known
-- given_on: the date in seed.funded_on if it belongs to this spell: on or before the day it was first seen, and after the
--   previous funded spell ended; else null
-- funded_before: given_on, or the day it was first seen: by this business date it was funded
-- funded_on: the same; null if no date is given and the deal was funded when first seen, because nobody knows since when
with
turns as (
  select
    deal_id,
    spell,
    status_class = 'funded' as is_funded,
    began_on,
    known_before,
    lag(began_on) over turns as ended_before,
    lead(began_on) over turns as ended_on
  from work.status_spell
  where (status_class = 'funded') <> coalesce(class_before = 'funded', false)
  window turns as (partition by deal_id order by spell)
),

given as (
  select
    turns.deal_id,
    turns.spell,
    given.funded_on
  from turns
  inner join seed.funded_on as given on given.deal_id = turns.deal_id
  where
    given.funded_on <= turns.began_on
    and coalesce(given.funded_on > turns.ended_before, true)
)

select
  turns.deal_id,
  row_number() over (partition by turns.deal_id order by turns.spell) as spell,
  turns.ended_on,
  turns.known_before,
  given.funded_on as given_on,
  coalesce(given.funded_on, turns.began_on) as funded_before,
  if(given_on is null and turns.spell = 1, null, funded_before) as funded_on
from turns
left join given on given.deal_id = turns.deal_id and given.spell = turns.spell
where turns.is_funded
