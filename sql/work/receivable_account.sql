-- The loans receivable account of each program under each mapping: the one named for it, else the one named `*`; no other
-- account has a program.
-- grain: since, loan_program
--
-- since: as in work.mapping_version
-- loan_program: every program a deal ever had; null for deals without one
-- code: account number; null if the mapping names no account
-- name: its name
with
programs as (
  select distinct loan_program
  from core.deal_history
)

select
  version.since,
  programs.loan_program,
  coalesce(named.account_code, fallback.account_code) as code,
  coalesce(named.account_name, fallback.account_name) as name
from work.mapping_version as version
cross join programs
left join seed.account as named on named.since = version.since and named.loan_program = programs.loan_program
left join seed.account as fallback on fallback.since = version.since and fallback.loan_program = '*'
