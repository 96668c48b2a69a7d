-- How long each deal of the pipeline has been in its status, against what is usual for that status.
-- grain: deal_id
-- adds_up: loan_amount
-- check: unique(deal_id)
-- check: not_null(deal_id, status, loan_amount, status_since, days_in_status, age_band)
-- check: accepted(age_band, ≤7, 8–14, 15–30, 31–60, 61–90, >90)
-- check: references(deal_id, core.deal.deal_id)
--
-- deal_id: the service's id; present deals of class pipeline, missing ones included
-- status: as in core.deal
-- loan_amount: USD
-- status_since: as in core.deal
-- days_in_status: calendar days from status_since to as_of, weekends included; negative where the source dates a draft
--   ahead
-- age_band: ≤7, 8–14, 15–30, 31–60, 61–90 or >90 days
-- usual_days: p90_days of mart.stage_duration, which nine in ten deals did not exceed; null where fewer than 20 spells
--   of the status were measured
-- is_stuck: days_in_status is more than usual_days; null where that is null
with
aged as (
  select
    deal_id,
    status,
    loan_amount,
    status_since,
    date_diff('day', status_since, cast(getvariable('as_of') as date)) as days_in_status
  from core.deal
  where status_class = 'pipeline'
)

select
  aged.deal_id,
  aged.status,
  aged.loan_amount,
  aged.status_since,
  aged.days_in_status,
  case
    when aged.days_in_status <= 7 then '≤7'
    when aged.days_in_status <= 14 then '8–14'
    when aged.days_in_status <= 30 then '15–30'
    when aged.days_in_status <= 60 then '31–60'
    when aged.days_in_status <= 90 then '61–90'
    else '>90'
  end as age_band,
  usual.p90_days as usual_days,
  aged.days_in_status > usual.p90_days as is_stuck
from aged
left join mart.stage_duration as usual on usual.status = aged.status and usual.completed >= 20
