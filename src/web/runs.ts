import {count, countOf, figures, instant, span} from '../page/figures.ts'
import {type Html, html, prose} from '../page/html.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import {formatLocal} from '../schedule/cron.ts'
import type {Job} from '../schedule/job.ts'
import type {JobRun} from '../state/job-runs.ts'
import {askFirst, type findHeldBack} from './actions.ts'
import type {Overview} from './overview.ts'

/** What the page of runs shows beside the overview. */
interface Beside {
  /** Whether who looks may act. */
  mayAct: boolean
  heldBack: ReturnType<typeof findHeldBack>
  /** The last walks; nothing as long as there is no release. */
  walks: Html | undefined
}

/** The state of a data folder: alarms, release, next slots, last runs, what people did, walks, checks. */
export function renderRuns(overview: Overview, {mayAct, heldBack, walks}: Beside): Html {
  const {now, alarms, holder, queued, jobRuns, actions, release} = overview
  return html`<ul class="facts">
<li>${alarms.length === 0 ? html`<b class="passed">no alarms</b>` : html`<b class="failed">${countOf(alarms.length, 'alarm')}</b>`}</li>
<li>${holder ? html`running: <b>${holder.command}</b>, ${holder.progress}` : html`<b>idle</b>`}</li>
<li><b>${queued.length}</b> queued</li>
<li>as seen at <b>${instant(now)}</b></li>
</ul>
${alarms.map(({title, words, since}) => html`<p class="notice"><b class="failed">${title}</b> since ${instant(since)}. ${prose(words)} What to do stands in docs/operations.md.</p>`)}
${heldBack && renderHeldBack(heldBack, mayAct)}
${renderFigures(overview)}
<h2>Next slots</h2>
${renderNext(overview, mayAct)}
<h2>Last runs of jobs</h2>
${jobRuns.length === 0 ? html`<p class="muted">No job has run here yet; what was started by hand shows above.</p>` : renderJobRuns(jobRuns)}
<h2 id="people">What people did</h2>
${actions.length === 0 ? html`<p class="muted">Nobody has asked for anything on these pages.</p>` : renderActions(actions)}
${walks}
${release && renderRelease(release)}`
}

function renderHeldBack({what, words}: NonNullable<Beside['heldBack']>, mayAct: boolean): Html {
  const form = askFirst('Accept it', {
    asked: {do: 'accept', what},
    says: html`Walks the source again and takes what it shows although it is more than a day explains (<code>loantape sync --accept ${what}</code>).`,
    button: 'Walk again and accept',
  })
  return html`<div class="notice"><b class="failed">The last walk was refused.</b> ${prose(words)}${mayAct && form}</div>`
}

function renderActions(actions: Overview['actions']): Html {
  return renderTable(
    ['When', 'Who', 'What', 'What came of it'],
    actions.map(({began_at, who, command, ended_at, exit_code, words, run}) => [
      instant(began_at),
      who,
      html`<code>${command}</code>`,
      run
        ? html`<span class="lines"><a href="/runs/${run.job_run_id}">Run ${run.job_run_id}</a>: ${describeState(run)}</span>`
        : ended_at === null
          ? html`<b class="unknown">goes on</b>`
          : html`<span class="lines ${exit_code === 0 ? '' : 'failed'}">${prose(words ?? '')}</span>`,
    ]),
  )
}

function renderFigures({now, lastSync, coverage, release}: Overview): Html {
  const moved = Object.entries(lastSync?.changes ?? {}).filter(
    ([kind, deals]) => kind !== 'unchanged' && deals > 0,
  )
  const kinds = moved.map(([kind, deals]) => `${count(deals)} ${kind}`).join(', ')
  return figures([
    {
      name: 'Last sync',
      value: lastSync ? `${span(now - lastSync.endedAt)} ago` : 'none yet',
      note: lastSync
        ? `for ${lastSync.walk.business_date}, took ${span(lastSync.duration_ms)}, waited ${span(lastSync.waited_ms)}`
        : 'nothing has been walked here',
    },
    {
      name: 'Walk',
      value: lastSync ? countOf(lastSync.walk.records, 'record') : '–',
      note: lastSync
        ? `${countOf(lastSync.walk.pages, 'page')}, ${count(lastSync.walk.quarantined)} quarantined`
        : '',
    },
    {
      name: 'Changes',
      value: count(moved.reduce((sum, [, deals]) => sum + deals, 0)),
      note: `${kinds || 'nothing new'}${coverage ? `; no webhook told of ${count(coverage.missed)}` : ''}`,
    },
    {
      name: 'Release',
      value: release ? release.as_of : 'none yet',
      note: release
        ? html`<a href="/checks">${countOf(release.checks.passed, 'check')} passed, ${count(release.checks.warned)} warned</a>`
        : 'the first sync makes one',
    },
  ])
}

function renderNext({now, next}: Overview, mayAct: boolean): Html {
  if (next.length === 0) return html`<p class="muted">No job is scheduled here.</p>`
  return renderTable(
    ['Job', 'Due in', 'Due', 'In its time zone', 'Steps', ...(mayAct ? ['Now'] : [])],
    next.map(({job, slot}) => [
      html`<b>${job.name}</b>`,
      span(slot - now),
      instant(slot),
      html`${formatLocal(slot, job.timeZone)} <span class="muted">${job.timeZone}</span>`,
      job.steps.map((step) => step.do).join(', '),
      ...(mayAct ? [askToRun(job)] : []),
    ]),
  )
}

const askToRun = ({name, steps}: Job) =>
  askFirst(`Run ${name}`, {
    asked: {do: 'run', job: name},
    says: `Queues a run of ${name} (${steps.map((step) => step.do).join(', ')}). It starts within seconds, or when what goes on has ended.`,
    button: `Run ${name}`,
  })

/** What became of a run so far, and when one that failed is tried again. */
export function describeState({state, attempt, reason, error_code, not_before}: JobRun): Html {
  const isTriedAgain = state === 'queued' && attempt > 0
  const words = html`<b class="${isTriedAgain ? 'failed' : STATE_CLASSES[state]}">${isTriedAgain ? 'failed' : state}</b>`
  if (isTriedAgain) return html`${words}, tried again at ${instant(not_before)}`
  if (state === 'running' && attempt > 1) return html`${words}, attempt ${attempt}`
  const why = state === 'failed' ? error_code : state === 'done' ? null : reason
  return html`${words}${why !== null && `, ${why}`}`
}

/** How a state of a run looks. */
const STATE_CLASSES = {
  done: 'passed',
  failed: 'failed',
  skipped: 'warned',
  queued: 'unknown',
  running: 'unknown',
}

function renderJobRuns(runs: readonly JobRun[]): Html {
  return renderTable(
    ['Job', 'State', 'Slot', 'Started', 'Took', 'What became of it'],
    runs.map((run) => [
      html`<a href="/runs/${run.job_run_id}"><b>${run.job}</b> ${run.job_run_id}</a>`,
      html`${describeState(run)}${run.attempt > 1 && html` <span class="muted">(${countOf(run.attempt, 'attempt')})</span>`}`,
      run.slot === null ? html`<span class="muted">asked for</span>` : instant(run.slot),
      run.started_at === null ? '' : instant(run.started_at),
      run.started_at === null || run.ended_at === null
        ? ''
        : span(Date.parse(run.ended_at) - Date.parse(run.started_at)),
      prose(run.error ?? ''),
    ]),
  )
}

function renderRelease({release_id, known_at, checks}: ReleaseManifest): Html {
  return html`<h2>Current release</h2>
<p><span class="mono">${release_id}</span>, which holds everything known at ${instant(known_at)}. <a href="/checks">${countOf(checks.passed, 'check')} passed${checks.warned > 0 && `, ${count(checks.warned)} warned`}</a>.</p>`
}

function renderTable(titles: readonly string[], rows: readonly (readonly (Html | string)[])[]): Html {
  return html`<div class="scroll" tabindex="0"><table>
<thead><tr>${titles.map((title) => html`<th scope="col">${title}</th>`)}</tr></thead>
<tbody>
${rows.map((cells) => html`<tr>${cells.map((cell) => html`<td>${cell}</td>`)}</tr>\n`)}</tbody>
</table></div>`
}
