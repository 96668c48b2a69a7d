create table run (
  run_id text primary key,
  command text not null,
  pid integer not null,
  started_at text not null,
  ended_at text,
  exit_code integer,
  outcome text,
  error_code text,
  error text,
  summary text
) strict;
create table lock (
  name text primary key,
  run_id text not null,
  command text not null,
  pid integer not null,
  host text not null,
  process_started text,
  started_at text not null,
  heartbeat_at integer not null,
  progress text not null
) strict;
-- paused_until: until when the source asked to wait, ms since the epoch; 0 if it never did.
create table learnt_rate (
  base_url text primary key,
  rate_per_second real not null,
  paused_until integer not null,
  learnt_at integer not null
) strict;
create index run_by_start on run (started_at, run_id);
create index run_by_success on run (command) where exit_code = 0;

create table checking (
  checking_id integer primary key autoincrement,
  release_id text not null,
  checked_at text not null,
  checks integer not null,
  is_plain integer not null,
  failed text not null
) strict;

-- Amounts are decimal text; lines, register and files are gzipped, so that they outlive releases and versions. history_id: the
-- history a batch or closed month stands on, the one it was made from or that of a true-up. issued_line.period: the month a
-- line belongs to, whichever batch it was handed out in. terms: those of the month's roll-forward, and how they are booked.
create table period_event (
  event_id integer primary key,
  period text not null,
  action text not null,
  at text not null,
  who text not null,
  why text
) strict;
-- after_batch: the last journal batch, of any profile, that was issued before the month was closed; 0 if none was. loans, amount:
-- what the register comes to. What is long stands last: SQLite reads through it to what follows.
create table closed_period (
  period text primary key,
  release text not null,
  mapping text not null,
  history_id text not null,
  terms text not null,
  after_batch integer not null,
  loans integer not null,
  amount text not null,
  lines blob not null,
  register blob not null
) strict;
create table remapped_period (
  period text primary key
) strict;
create table journal_batch (
  batch_no integer primary key,
  profile text not null,
  batch_id text not null,
  period text not null,
  known_at text not null,
  issued_at text not null,
  is_handed_over integer not null,
  history_id text not null,
  unique (profile, batch_id)
) strict;
create table journal_file (
  batch_no integer not null references journal_batch,
  name text not null,
  content blob not null,
  primary key (batch_no, name)
) strict;
create table issued_line (
  batch_no integer not null references journal_batch,
  journal_no text not null,
  line_no integer not null,
  entry_id text not null,
  issue_no integer not null,
  entry_date text not null,
  event text not null,
  account_code text not null,
  account_name text not null,
  debit text,
  credit text,
  memo text not null,
  deal_id text not null,
  loan_program text,
  period text not null,
  primary key (batch_no, journal_no, line_no)
) strict;
create index issued_line_by_deal on issued_line (deal_id);
create index issued_line_by_number on issued_line (journal_no, line_no);
-- No plan, however wrong, gives a profile a number twice.
create trigger issued_once before insert on issued_line
when exists (
  select 1
  from issued_line as line
  inner join journal_batch as batch using (batch_no)
  where line.journal_no = new.journal_no and line.line_no = new.line_no and line.batch_no <> new.batch_no
    and batch.profile = (select profile from journal_batch where batch_no = new.batch_no)
)
begin
  select raise(abort, 'this journal number is issued already');
end;

-- By place, because a target's name can be given to another place. An empty sha256: to be sent again.
create table delivered_file (
  place text not null,
  target text not null,
  profile text not null,
  batch_id text not null,
  name text not null,
  sha256 text not null,
  primary key (place, profile, batch_id, name)
) strict;

-- Instants are ISO 8601, except not_before and heartbeat_at: ms since the epoch.
create table job_watch (
  job text primary key,
  schedule text not null,
  time_zone text not null,
  watched_from text not null,
  seen_until text not null,
  seen_before text
) strict;
create table job_run (
  job_run_id integer primary key,
  job text not null,
  slot text,
  state text not null check (state in ('queued', 'running', 'done', 'failed', 'skipped')),
  reason text,
  attempt integer not null,
  not_before integer not null,
  pid integer,
  host text,
  process_started text,
  heartbeat_at integer,
  started_at text,
  ended_at text,
  exit_code integer,
  error_code text,
  error text,
  summary text,
  unique (job, slot)
) strict;
create index job_run_by_state on job_run (state, job);
create index job_run_by_start on job_run (job, started_at);
create index job_run_by_end on job_run (job, ended_at);
create table webhook_event (
  event_id text primary key,
  received_at text not null,
  type text not null,
  deal_id text not null,
  settled_at text,
  outcome text
) strict;
create table source_answer (
  status integer primary key,
  answers integer not null
) strict;
create table alarm (
  name text primary key,
  state text not null,
  since text not null
) strict;
create table notice (
  notice_id integer primary key,
  channel text not null,
  alarm text not null,
  message text not null,
  created_at text not null,
  attempts integer not null,
  next_attempt_at integer not null,
  sent_at text,
  error text
) strict;

-- How each start of a job run ended, and the end of what it logged; instants are ISO 8601.
create table job_attempt (
  job_run_id integer not null,
  attempt integer not null,
  started_at text not null,
  ended_at text not null,
  exit_code integer,
  error_code text,
  error text,
  log text,
  primary key (job_run_id, attempt)
) strict;
-- The attempts of a run go with it: its number may be given again.
create trigger run_forgotten after delete on job_run begin
  delete from job_attempt where job_run_id = old.job_run_id;
end;

-- Of walks settled while webhooks were on. Instants of the real clock; changes and missed are null if nothing was compared.
create table webhook_coverage (
  walk_id text primary key,
  began_at text not null,
  settled_at text not null,
  changes integer,
  missed integer
) strict;

-- name: of a walk or an act, or the day whose looks, rates and replays share a tape.
create table tape (
  tape_no integer primary key,
  name text not null unique,
  path text not null,
  fingerprint text not null,
  begun_at text not null,
  ended_at text,
  outcome text,
  bytes integer,
  sha256 text,
  removed_at text
) strict;
-- Every finished unit, in the order of the record. chain: of its outcome, which names the chain of the unit before.
create table tape_unit (
  no integer primary key,
  tape text not null,
  kind text not null,
  chain text not null unique
) strict;
-- folder_id: whose folder this is. history_head: the unit that the warehouse must contain. stores_seen: what all
-- files looked like when they were compared and agreed.
create table record_fact (
  name text primary key,
  value text not null
) strict;
-- What was given up knowingly: chains of units, ids of batches. is_in_history: only the tape of that unit is lost.
create table record_loss (
  what text primary key,
  is_in_history integer not null
) strict;
-- When and why it was given up, and how many units and batches.
create table went_on (
  at text not null,
  why text not null,
  given_up integer not null
) strict;
create table tape_key (
  fingerprint text primary key,
  since text not null,
  why text
) strict;

-- What people did on the page; instants are ISO 8601.
create table page_action (
  action_id integer primary key,
  who text not null,
  command text not null,
  began_at text not null,
  ended_at text,
  exit_code integer,
  words text,
  why text
) strict;

-- What people noted about days, deals and limits, in the order in which it was written. A row without text withdraws the one that it
-- replaces. Nothing is changed or deleted; only one row replaces another.
create table note (
  note_no integer primary key,
  about text not null check (about in ('day', 'deal', 'limit')),
  subject text not null,
  text text,
  at text not null,
  who text not null,
  replaces integer unique
) strict;
create index note_by_subject on note (about, subject);
