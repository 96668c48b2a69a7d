-- Certificates whose bridge to the present {plural} does not add up, table 'raw.walk'
select
  walk_id,
  present_deals,
  distinct_records + kept_quarantined_deals + kept_missing_deals + adjusted_deals as explained_deals,
  present_amount,
  amount_total + kept_quarantined_amount + kept_missing_amount + adjusted_amount as explained_amount
from walk
where
  stream = '{name}'
  and state = 'applied'
  and (present_deals is distinct from explained_deals or present_amount is distinct from explained_amount)
order by recorded_at desc
