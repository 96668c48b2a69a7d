-- The funded book by month: what it was, what moved it, and what it is. Opening and what moved it make the closing,
-- which is read from the funded positions of the month's last day, not computed from them.
-- grain: month
-- adds_up: opening, found, originated, restored, increased, decreased, reversed, vanished, ended, closing
-- check: unique(month)
-- check: not_null(month, opening, found, originated, restored, increased, decreased, reversed, vanished, ended, closing)
-- check: accepted(difference, 0.00)
--
-- month: YYYY-MM; every month from the first walk to as_of
-- opening: closing of the month before; in the first month what was funded at the first walk, USD
-- found: funded when first readable, and known from quarantine since the first walk: it was funded before, USD
-- originated: first seen funded, or funded again, USD
-- restored: had vanished as funded and came back as funded, USD
-- increased: added to the amounts of funded deals, USD
-- decreased: taken from the amounts of funded deals, USD
-- reversed: went from funded to a status that is neither of class funded nor ended_funded, USD
-- vanished: confirmed gone, USD
-- ended: went to a status of class ended_funded, such as paid_off, USD
-- closing: funded positions at the end of the month's last day, or at as_of, USD
-- difference: closing − (opening + found + originated + restored + increased − decreased − reversed − vanished − ended), USD;
--   always 0
with
moved as (
  select
    month,
    sum(amount) filter (where term = 'opening') as opening,
    sum(amount) filter (where term = 'found') as found,
    sum(amount) filter (where term = 'originated') as originated,
    sum(amount) filter (where term = 'restored') as restored,
    sum(amount) filter (where term = 'increased') as increased,
    sum(amount) filter (where term = 'decreased') as decreased,
    sum(amount) filter (where term = 'reversed') as reversed,
    sum(amount) filter (where term = 'vanished') as vanished,
    sum(amount) filter (where term = 'ended') as ended
  from work.funded_movement
  group by month
),

closings as (
  select
    month.month,
    coalesce(sum(position.amount) filter (where status.class = 'funded'), 0) as closing
  from work.month as month
  left join mart.position_daily as position on position.day = month.to_day
  left join seed.status on status.status = position.status
  group by month.month
),

terms as (
  select
    closings.month,
    coalesce(moved.opening, 0) + coalesce(lag(closings.closing) over (order by closings.month), 0) as opening,
    coalesce(moved.found, 0) as found,
    coalesce(moved.originated, 0) as originated,
    coalesce(moved.restored, 0) as restored,
    coalesce(moved.increased, 0) as increased,
    coalesce(moved.decreased, 0) as decreased,
    coalesce(moved.reversed, 0) as reversed,
    coalesce(moved.vanished, 0) as vanished,
    coalesce(moved.ended, 0) as ended,
    closings.closing
  from closings
  left join moved on moved.month = closings.month
)

select
  month,
  cast(opening as decimal(38, 2)) as opening,
  cast(found as decimal(38, 2)) as found,
  cast(originated as decimal(38, 2)) as originated,
  cast(restored as decimal(38, 2)) as restored,
  cast(increased as decimal(38, 2)) as increased,
  cast(decreased as decimal(38, 2)) as decreased,
  cast(reversed as decimal(38, 2)) as reversed,
  cast(vanished as decimal(38, 2)) as vanished,
  cast(ended as decimal(38, 2)) as ended,
  cast(closing as decimal(38, 2)) as closing,
  cast(
    closing - (opening + found + originated + restored + increased - decreased - reversed - vanished - ended) as decimal(38, 2)
  ) as difference
from terms
