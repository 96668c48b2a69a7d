-- The deals of a release that a condition selects.
select deal_id, status, status_class, loan_amount
from release.core.deal as deal
where {condition}
