-- The attempts of a run go with it: its number may be given again. Those that a run has not ended were another's.
create trigger run_forgotten after delete on job_run begin
  delete from job_attempt where job_run_id = old.job_run_id;
end;
delete from job_attempt where not exists (
  select * from job_run
  where job_run.job_run_id = job_attempt.job_run_id
    and job_run.attempt >= job_attempt.attempt + (job_run.state = 'running')
);
