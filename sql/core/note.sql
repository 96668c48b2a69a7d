-- What people noted about a day, a deal or a limit, by the moment that the release knows. A note is never changed: another replaces
-- it, or somebody withdraws it. One about a deal that nobody knows is left out.
-- grain: note_no
-- check: unique(note_no)
-- check: not_null(note_no, about, note, written_at, written_by)
-- check: accepted(about, day, deal, limit)
--
-- note_no: its number, from 1, in the order in which notes were written; withdrawals have one too
-- about: day, deal or limit
-- day: the day; null when it is about something else
-- deal_id: the deal; null when it is about something else
-- limit_name: the limit, as `seed.limit` names it; null when it is about something else
-- note: its text
-- written_at: when, UTC
-- written_by: the user; of the workbench the name and address of the browser
-- replaces_no: the note that it replaces; null when it is the first
-- ended_at: when it was replaced or withdrawn, UTC; null when it stands
-- ended_by: who did that; null when it stands
-- replaced_by_no: the note that replaces it; null when it stands or was withdrawn
select
  written.note_no,
  written.about,
  if(written.about = 'day', cast(written.subject as date), null) as day,
  if(written.about = 'deal', written.subject, null) as deal_id,
  if(written.about = 'limit', written.subject, null) as limit_name,
  written.text as note,
  cast(written.at as timestamp) as written_at,
  written.who as written_by,
  written.replaces as replaces_no,
  cast(later.at as timestamp) as ended_at,
  later.who as ended_by,
  if(later.text is null, null, later.note_no) as replaced_by_no
from seed.note as written
left join seed.note as later on later.replaces = written.note_no
where
  written.text is not null
  and (written.about <> 'deal' or written.subject in (select deal_id from core.deal_history))
