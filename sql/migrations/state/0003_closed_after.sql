-- after_batch: the last journal batch, of any profile, that was issued before the month was closed; 0 if none was.
alter table closed_period add column after_batch integer not null default 0;
update closed_period set after_batch = coalesce(
  (
    select max(batch_no) from journal_batch where issued_at < (
      select max(at) from period_event where action = 'close' and period_event.period = closed_period.period
    )
  ),
  0
);
