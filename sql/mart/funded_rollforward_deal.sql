-- What mart.funded_rollforward is made of: every movement of the funded book, deal by deal. A deal that is changed
-- twice within a month has a row for each change.
-- grain: month, deal_id, version, term
-- per: deal_id
-- adds_up: amount
-- check: unique(month, deal_id, version, term)
-- check: not_null(month, deal_id, term, amount, business_date, version)
-- check: accepted(term, opening, found, originated, refunded, restored, increased, decreased, reversed, vanished, paid_off, sold, refinanced, foreclosed, charged_off, ended_other)
-- check: between(amount, 0, 9999999999999999.99)
--
-- month: YYYY-MM
-- deal_id: the service's id
-- term: the column of mart.funded_rollforward it counts in
-- amount: never negative, USD
-- business_date: the day it counts for
-- version: the version of core.deal_history that moved it; a loan that comes back only to end has two terms in one
select
  month,
  deal_id,
  term,
  amount,
  business_date,
  version
from work.funded_movement
where term <> 'reclass'
