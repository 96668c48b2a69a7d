-- The day from which the portfolio was observed, in one row. Built for other models and not kept.
-- grain: first_on
--
-- first_on: business date of the first complete walk; of the first version if there was none; null without either
select
  coalesce(
    (select min(business_date) from mart.run where stream = 'deal' and is_complete),
    (select min(business_date) from core.deal_history)
  ) as first_on
