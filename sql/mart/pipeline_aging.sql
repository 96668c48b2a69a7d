-- How long each pipeline deal has been in its status, compared with what is usual for that status. If nobody saw the status
-- begin, the days lie between two bounds; is_stuck uses the lower one, so a deal it marks is certainly stuck.
-- grain: deal_id
-- adds_up: loan_amount
-- check: unique(deal_id)
-- check: not_null(deal_id, status, loan_amount, status_since, status_since_is_exact, days_in_status, age_band)
-- check: accepted(age_band, ≤7, 8–14, 15–30, 31–60, 61–90, >90, unknown (≥ 0), unknown (≥ 8), unknown (≥ 15), unknown (≥ 31), unknown (≥ 61))
-- check: references(deal_id, core.deal.deal_id)
--
-- deal_id: the service's id; present deals of class pipeline, missing ones included
-- status: as in core.deal
-- loan_amount: USD
-- status_since: as in core.deal
-- status_since_is_exact: as in core.deal
-- days_in_status: the minimum number of calendar days it has been in its status, weekends included: as_of −
--   status_since_at_latest of core.deal
-- days_in_status_at_most: the maximum number: as_of − status_since_at_earliest of core.deal; the same if status_since is exact;
--   null when unbounded
-- age_band: ≤7, 8–14, 15–30, 31–60, 61–90 or >90 days; if the bounds lie in different bands, `unknown (≥ n)` with the first day
--   of the lower one's band
-- usual_days: p90_days of mart.stage_duration for any exit, which nine in ten spells do not exceed; null if fewer than 20
--   spells of the status were completed, or the curve does not fall that far
-- is_stuck: days_in_status, the lower bound, is more than usual_days; null if usual_days is null
with
aged as (
  select
    deal_id,
    status,
    loan_amount,
    status_since,
    status_since_is_exact,
    cast(getvariable('as_of') as date) - status_since_at_latest as days_in_status,
    cast(getvariable('as_of') as date) - status_since_at_earliest as days_in_status_at_most
  from core.deal
  where status_class = 'pipeline'
),

bands as (
  select
    unnest(['≤7', '8–14', '15–30', '31–60', '61–90', '>90']) as age_band,
    unnest([0, 8, 15, 31, 61, 91]) as from_days,
    unnest([7, 14, 30, 60, 90, null]) as to_days
)

select
  aged.deal_id,
  aged.status,
  aged.loan_amount,
  aged.status_since,
  aged.status_since_is_exact,
  aged.days_in_status,
  aged.days_in_status_at_most,
  case
    when band.to_days is null or aged.days_in_status_at_most <= band.to_days then band.age_band
    else 'unknown (≥ ' || band.from_days || ')'
  end as age_band,
  usual.p90_days as usual_days,
  aged.days_in_status > usual.p90_days as is_stuck
from aged
inner join bands as band
  on greatest(aged.days_in_status, 0) >= band.from_days
  and coalesce(greatest(aged.days_in_status, 0) <= band.to_days, true)
left join mart.stage_duration as usual
  on usual.status = aged.status and usual.exit = 'any' and usual.completed >= 20
