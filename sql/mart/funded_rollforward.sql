-- The funded book by month: the opening, what moved it, and the closing. The closing is read from the funded positions of the
-- month's last day, not computed from the opening and the movements.
-- grain: month
-- adds_up: opening, found, originated, refunded, restored, increased, decreased, reversed, vanished
-- adds_up: paid_off, sold, refinanced, foreclosed, charged_off, ended_other, closing
-- check: unique(month)
-- check: not_null(month, opening, found, originated, refunded, restored, increased, decreased, reversed, vanished)
-- check: not_null(paid_off, sold, refinanced, foreclosed, charged_off, ended_other, closing, difference)
-- check: accepted(difference, 0.00)
--
-- month: YYYY-MM; every month from the first walk to as_of
-- opening: closing of the month before; in the first month what was funded at the first walk, USD
-- found: funded when first readable, and in quarantine since the first walk, so funded before, USD
-- originated: funded for the first time, USD; a loan that was never seen as funded, such as one first seen as sold, was never in
--   the book
-- refunded: funded again after it had left the book, for example after a loan was on hold; or it left so and ended, or ended in
--   another way than before, which takes it in again first, USD
-- restored: had vanished as funded and came back as funded, or came back ended, USD
-- increased: added to the amounts of funded deals, USD
-- decreased: taken from the amounts of funded deals, USD
-- reversed: went from funded to a status that is neither of class funded nor ended_funded, USD
-- vanished: confirmed gone, USD
-- paid_off: went to a status of class ended_funded whose ending in seed.status is paid_off, USD
-- sold: the same with the ending sold, USD
-- refinanced: the same with the ending refinanced, USD
-- foreclosed: the same with the ending foreclosed, USD
-- charged_off: the same with the ending charged_off, USD
-- ended_other: the same with the ending ended_other or none, USD
-- closing: funded positions at the end of the month's last day, or at as_of, USD
-- difference: closing − (opening + found + originated + refunded + restored + increased − decreased − reversed − vanished
--   − paid_off − sold − refinanced − foreclosed − charged_off − ended_other), USD; always 0
with
by_term as (
  select
    month,
    term,
    sum(amount) as amount
  from work.funded_movement
  group by
    month,
    term
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
    closings.closing,
    coalesce(sum(amount) filter (where term = 'opening'), 0) + coalesce(lag(closing) over (order by closings.month), 0)
      as opening,
    coalesce(sum(amount) filter (where term = 'found'), 0) as found,
    coalesce(sum(amount) filter (where term = 'originated'), 0) as originated,
    coalesce(sum(amount) filter (where term = 'refunded'), 0) as refunded,
    coalesce(sum(amount) filter (where term = 'restored'), 0) as restored,
    coalesce(sum(amount) filter (where term = 'increased'), 0) as increased,
    coalesce(sum(amount) filter (where term = 'decreased'), 0) as decreased,
    coalesce(sum(amount) filter (where term = 'reversed'), 0) as reversed,
    coalesce(sum(amount) filter (where term = 'vanished'), 0) as vanished,
    coalesce(sum(amount) filter (where term = 'paid_off'), 0) as paid_off,
    coalesce(sum(amount) filter (where term = 'sold'), 0) as sold,
    coalesce(sum(amount) filter (where term = 'refinanced'), 0) as refinanced,
    coalesce(sum(amount) filter (where term = 'foreclosed'), 0) as foreclosed,
    coalesce(sum(amount) filter (where term = 'charged_off'), 0) as charged_off,
    coalesce(sum(amount) filter (where term = 'ended_other'), 0) as ended_other
  from closings
  left join by_term on by_term.month = closings.month
  group by
    closings.month,
    closings.closing
)

select
  month,
  cast(opening as decimal(38, 2)) as opening,
  cast(found as decimal(38, 2)) as found,
  cast(originated as decimal(38, 2)) as originated,
  cast(refunded as decimal(38, 2)) as refunded,
  cast(restored as decimal(38, 2)) as restored,
  cast(increased as decimal(38, 2)) as increased,
  cast(decreased as decimal(38, 2)) as decreased,
  cast(reversed as decimal(38, 2)) as reversed,
  cast(vanished as decimal(38, 2)) as vanished,
  cast(paid_off as decimal(38, 2)) as paid_off,
  cast(sold as decimal(38, 2)) as sold,
  cast(refinanced as decimal(38, 2)) as refinanced,
  cast(foreclosed as decimal(38, 2)) as foreclosed,
  cast(charged_off as decimal(38, 2)) as charged_off,
  cast(ended_other as decimal(38, 2)) as ended_other,
  cast(closing as decimal(38, 2)) as closing,
  cast(
    closing
    - (opening + found + originated + refunded + restored + increased)
    + (decreased + reversed + vanished + paid_off + sold + refinanced + foreclosed + charged_off + ended_other)
    as decimal(38, 2)
  ) as difference
from terms
