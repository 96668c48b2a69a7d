-- Ages.
-- grain: deal_id
-- per: deal_id
-- deal_id: the id
-- days: since it began
select deal_id, cast(getvariable('as_of') as date) - min(business_date) as days from raw.deal_version group by all
