-- The versions of a deal are numbered 1, 2, …, each is valid until the next begins, and exactly one is current.
-- severity: error
-- per: deal_id
with
numbered as (
  select
    deal_id,
    version,
    valid_from,
    valid_to,
    row_number() over history as expected_version,
    lead(valid_from) over history as expected_valid_to
  from core.deal_history
  window history as (partition by deal_id order by version)
)

select
  deal_id,
  version,
  expected_version,
  valid_from,
  valid_to,
  expected_valid_to
from numbered
where
  version <> expected_version
  or valid_to is distinct from expected_valid_to
  or valid_from > valid_to
