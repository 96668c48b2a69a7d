-- Every movement of the funded book. A version that changes the status books only that: a deal leaves at its previous amount and
-- enters at its own.
-- grain: deal_id, version, term
-- per: deal_id
--
-- deal_id: the service's id
-- version: the version of core.deal_history that moved it; it may be followed by its own reclass
-- term: opening: funded at the first walk. found: funded when it was first readable, and in quarantine since the first
--   walk. originated: funded for the first time. refunded: funded again after it had left, or after it was seen in a
--   status of class ended_funded. restored: vanished as funded and came back as funded. increased, decreased: another
--   amount while funded. paid_off, sold, refinanced, foreclosed, charged_off: to a status of class ended_funded, by its
--   ending in seed.status; ended_other if that says none. A loan that ends after it was reversed or had vanished,
--   or in another way than before (but for the sale of a foreclosed property), is refunded or restored and ended by one version, both at what last left; one that
--   had ended and is funded again comes back as it left before it changes. reversed: to a status of any other class.
--   vanished: confirmed gone. reclass: another program while funded, which moves no total: it comes before an increase or
--   decrease of the same version
-- event: what the journal calls it: opening, funding, increase, decrease, reversal, ended, reclass
-- amount: what moved, never negative, USD; of a reclass the amount before
-- previous_amount: what was in the book before, USD; null if the deal was not in it
-- loan_program: as of this version, of a loan that comes back as it left as of then; the program an increase,
--   decrease or entry is booked under
-- is_learned: whether it is a reclass to the first program that was ever shown, of a loan that began as opening or found: its
--   opening, its only movement so far, belongs under that program
-- previous_loan_program: the program it was booked under before; null if there was none or the deal was not in the
--   book
-- ending_before: of refunded, the ending that it takes back; null if none was booked
-- ending_month: YYYY-MM in which that was booked; null if none was
-- observed_at: start of the request that showed it, UTC; with its version in microseconds where that of the one before is the same
-- business_date: the day it counts for. A replayed version never counts later than what followed it; nothing counts before the
--   first walk
-- funded_on: as in core.deal, of the funded spell that the movement begins, changes or ends; null if the deal was
--   funded when first seen and no date is given, and if the loan comes back only to end
-- month: of business_date, YYYY-MM
-- next_month: month of the deal's next movement, reclasses aside; null if there is none
-- cohort_month: of its deal, as in mart.vintage; null if the deal is in no cohort
with
stated as (
  select
    history.*,
    case
      when history.change = 'vanished' then null
      when history.status_class = 'funded' then 'funded'
      when history.status_class <> 'ended_funded' then null
      else coalesce(status.ending, 'ended_other')
    end as stated_outcome
  from core.deal_history as history
  left join seed.status as status on status.status = history.status
  where history.deal_id in (select deal_id from core.deal_history where status_class = 'funded')
),

-- A deal that vanishes keeps its status class: coming back does not begin another funded spell.
steps as (
  select
    deal_id,
    version,
    change,
    -- Ids of entries need another instant for each version, which a frozen clock does not give.
    valid_from + to_microseconds(case when lag(valid_from) over earlier = valid_from then version else 0 end) as observed_at,
    min(business_date) over onward as business_date,
    loan_amount,
    loan_program,
    -- What is sold after a foreclosure is the property, not the loan.
    last_value(nullif(stated_outcome, 'sold') ignore nulls) over before = 'foreclosed' as is_property,
    last_value(stated_outcome ignore nulls) over before as stated_before,
    if(is_property and stated_outcome = 'sold', 'foreclosed', stated_outcome) as outcome,
    if(is_property and stated_before = 'sold', 'foreclosed', stated_before) as outcome_before,
    coalesce(outcome = 'funded', false) as is_funded,
    lag(status_class) over earlier as class_before,
    last_value(case when stated_outcome = 'funded' then {'amount': loan_amount, 'program': loan_program} end ignore nulls)
      over before as held,
    case when held is not null and outcome_before <> 'funded' then outcome_before end as ending_before,
    is_funded and ending_before is not null as is_taken_back,
    coalesce(outcome <> 'funded' and held is not null and outcome_before <> outcome, false) as is_end,
    -- What comes back as it left is in the book before it changes.
    is_taken_back or coalesce(lag(stated_outcome = 'funded') over earlier, false) as was_funded,
    coalesce(bool_or(status_class in ('funded', 'ended_funded')) over before, false) as was_ever_funded,
    status_class = 'funded' and lag(status_class) over earlier is distinct from 'funded' as is_start
  from stated
  window
    earlier as (partition by deal_id order by version),
    before as (partition by deal_id order by version rows between unbounded preceding and 1 preceding),
    onward as (partition by deal_id order by version rows between current row and unbounded following)
),

quarantined_from_first as (
  select quarantined.deal_id
  from work.quarantined
  inner join work.first_walk as first_walk on quarantined.business_date <= first_walk.first_on
),

unseen_before as (
  select
    deal_id,
    deal_id in (select deal_id from quarantined_from_first) as was_quarantined
  from work.status_spell
  where spell = 1 and known_before is null
),

moves as (
  select
    steps.*,
    case
      when is_funded and unseen_before.deal_id is not null and business_date <= first_walk.first_on then 'opening'
      when is_funded and unseen_before.was_quarantined then 'found'
      when is_funded and not was_funded and class_before = 'funded' then 'restored'
      when is_funded and not was_funded and was_ever_funded then 'refunded'
      when is_funded and not was_funded then 'originated'
      when was_funded and change = 'vanished' then 'vanished'
      when is_end then outcome
      when was_funded and not is_funded then 'reversed'
      when was_funded and loan_amount > held.amount then 'increased'
      when was_funded and loan_amount < held.amount then 'decreased'
    end as term,
    case
      when not is_funded then held.amount
      when not was_funded then loan_amount
      else abs(loan_amount - held.amount)
    end as amount,
    case when was_funded or is_end then held end as before,
    is_taken_back or (is_end and not was_funded) as comes_back,
    greatest(business_date, first_walk.first_on) as booked_on,
    strftime(booked_on, '%Y-%m') as month,
    count_if(is_start) over so_far as spell,
    first_value(term ignore nulls) over always as first_term,
    count(term) over before as moved_before,
    last_value(case when is_end then month end ignore nulls) over before as ending_month,
    lead(case when term is not null or comes_back then month end ignore nulls) over so_far as next_month,
    first_value(case when term = 'originated' and date_trunc('month', booked_on) >= first_walk.first_on then month end ignore nulls)
      over always as cohort_month
  from steps
  cross join work.first_walk as first_walk
  left join unseen_before on unseen_before.deal_id = case when steps.version = 1 then steps.deal_id end
  where is_funded or was_funded or is_start or is_end
  window
    so_far as (partition by steps.deal_id order by steps.version),
    before as (partition by steps.deal_id order by steps.version rows between unbounded preceding and 1 preceding),
    always as (partition by steps.deal_id order by steps.version rows between unbounded preceding and unbounded following)
),

learned as (
  select deal_id, observed_at
  from work.deal_observation
  where change = 'updated' and not program_was_shown
),

booked as (
  select *, false as is_learned
  from moves
  where term is not null
  union all by name
  select
    * replace ('reclass' as term, held.amount as amount),
    first_term in ('opening', 'found')
    and moved_before = 1
    and (deal_id, observed_at) in (select (deal_id, observed_at) from learned) as is_learned
  from moves
  where is_funded and was_funded and loan_program is distinct from held.program
  union all by name
  -- Whatever took a loan off the book before it ended, its ending is booked from the receivable.
  select * replace (
    case when class_before = 'funded' then 'restored' else 'refunded' end as term,
    held.amount as amount,
    held.program as loan_program,
    null as before,
    if(term is null, next_month, month) as next_month
  ),
  false as is_learned
  from moves
  where comes_back
)

select
  booked.deal_id,
  booked.version,
  booked.term,
  case
    when booked.term in ('opening', 'found') then 'opening'
    when booked.term in ('originated', 'refunded', 'restored') then 'funding'
    when booked.term = 'increased' then 'increase'
    when booked.term = 'decreased' then 'decrease'
    when booked.term in ('reversed', 'vanished') then 'reversal'
    when booked.term = 'reclass' then 'reclass'
    else 'ended'
  end as event,
  cast(booked.amount as decimal(18, 2)) as amount,
  booked.before.amount as previous_amount,
  booked.loan_program,
  booked.is_learned,
  booked.before.program as previous_loan_program,
  case when booked.term = 'refunded' then booked.ending_before end as ending_before,
  case when booked.term = 'refunded' and booked.ending_before is not null then booked.ending_month end as ending_month,
  booked.observed_at,
  booked.booked_on as business_date,
  case when booked.term in ('refunded', 'restored') and booked.is_end then null else spell.funded_on end as funded_on,
  booked.month,
  booked.next_month,
  booked.cohort_month
from booked
inner join work.funded_spell as spell on spell.deal_id = booked.deal_id and spell.spell = booked.spell
