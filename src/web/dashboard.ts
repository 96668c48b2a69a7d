import {count, figures, instant} from '../page/figures.ts'
import {type Html, html} from '../page/html.ts'
import {renderPage} from '../page/html-page.ts'
import type {CheckResult, ReleaseManifest} from '../release-manifest.ts'
import {formatLocal} from '../schedule/local-time.ts'
import type {JobRun} from '../state/job-runs.ts'
import type {Overview} from './overview.ts'

/** The state of a data folder as one self-contained page: alarms, release, next slots, last runs, checks. */
export function renderDashboard(overview: Overview): string {
  const {now, alarms, holder, queued, jobRuns, release} = overview
  const body = html`<main class="sheet">
<h1>loantape</h1>
<ul class="facts">
<li>${alarms.length === 0 ? html`<b class="passed">no alarms</b>` : html`<b class="failed">${alarms.length} ${alarms.length === 1 ? 'alarm' : 'alarms'}</b>`}</li>
<li>${holder ? html`running: <b>${holder.command}</b>, ${holder.progress}` : html`<b>idle</b>`}</li>
<li><b>${queued.length}</b> queued</li>
<li>as seen at <b>${instant(now)}</b></li>
</ul>
${alarms.map(({name, state, since}) => html`<p class="notice"><b class="failed">${name}: ${state}</b> since ${instant(since)}. What to do stands in docs/operations.md.</p>`)}
${renderFigures(overview)}
<h2>Next slots</h2>
${renderNext(overview)}
<h2>Last runs</h2>
${jobRuns.length === 0 ? html`<p class="muted">No job has run here yet.</p>` : renderRuns(jobRuns)}
${release && renderRelease(release)}
</main>`
  return renderPage({title: alarms.length === 0 ? 'loantape' : `loantape (${alarms.length})`, body})
}

function renderFigures({now, lastSync, coverage, release}: Overview): Html {
  const moved = Object.entries(lastSync?.changes ?? {}).filter(
    ([kind, deals]) => kind !== 'unchanged' && deals > 0,
  )
  const kinds = moved.map(([kind, deals]) => `${count(deals)} ${kind}`).join(', ')
  return figures([
    lastSync
      ? [
          'Last sync',
          `${span(now - lastSync.endedAt)} ago`,
          `for ${lastSync.walk.business_date}, took ${span(lastSync.duration_ms)}, waited ${span(lastSync.waited_ms)}`,
        ]
      : ['Last sync', 'none yet', 'nothing has been walked here'],
    lastSync
      ? [
          'Walk',
          `${count(lastSync.walk.records)} records`,
          `${count(lastSync.walk.pages)} pages, ${count(lastSync.walk.quarantined)} quarantined`,
        ]
      : ['Walk', '–', ''],
    [
      'Changes',
      count(moved.reduce((sum, [, deals]) => sum + deals, 0)),
      `${kinds || 'nothing new'}${coverage ? `; no webhook told of ${count(coverage.missed)}` : ''}`,
    ],
    release
      ? ['Release', release.as_of, `${release.checks.passed} checks passed, ${release.checks.warned} warned`]
      : ['Release', 'none yet', 'the first sync makes one'],
  ])
}

function renderNext({now, next}: Overview): Html {
  return renderTable(
    ['Job', 'Due in', 'Local time', 'UTC', 'Steps'],
    next.map(({job, slot}) => [
      html`<b>${job.name}</b>`,
      span(slot - now),
      html`${formatLocal(slot, job.timeZone)} <span class="muted">${job.timeZone}</span>`,
      instant(slot),
      job.steps.map((step) => step.do).join(', '),
    ]),
  )
}

const CLASSES = {done: 'passed', failed: 'failed', skipped: 'warned', queued: 'unknown', running: 'unknown'}

function renderRuns(runs: readonly JobRun[]): Html {
  return renderTable(
    ['Job', 'State', 'Slot', 'Started', 'Took', 'What became of it'],
    runs.map((run) => [
      html`<b>${run.job}</b> <span class="muted">${run.job_run_id}</span>`,
      html`<b class="${CLASSES[run.state]}">${run.state}</b>${run.attempt > 1 && html` <span class="muted">${run.attempt}×</span>`}`,
      run.slot === null ? html`<span class="muted">asked for</span>` : instant(run.slot),
      run.started_at === null ? '' : instant(run.started_at),
      run.started_at === null || run.ended_at === null
        ? ''
        : span(Date.parse(run.ended_at) - Date.parse(run.started_at)),
      run.error_code === null
        ? (run.reason ?? '')
        : html`<span class="mono">${run.error_code}</span> ${run.error ?? ''}`,
    ]),
  )
}

function renderRelease({release_id, known_at, checks, tables}: ReleaseManifest): Html {
  return html`<h2>Current release</h2>
<p><span class="mono">${release_id}</span>, which holds everything known at ${instant(known_at)}.</p>
<h3>Checks</h3>
${
  checks.results.length === 0
    ? html`<p>All ${checks.passed} passed.</p>`
    : renderTable(
        ['Check', 'Severity', 'Rows'],
        checks.results.map(({name, severity, failures}: CheckResult) => [
          html`<span class="mono">${name}</span>`,
          html`<b class="warned">${severity}</b>`,
          count(failures),
        ]),
      )
}
<h3>Tables</h3>
${renderTable(
  ['Table', 'Rows'],
  tables.map(({name, rows}) => [html`<span class="mono">${name}</span>`, count(rows)]),
)}`
}

function renderTable(titles: readonly string[], rows: readonly (readonly (Html | string)[])[]): Html {
  return html`<div class="scroll"><table>
<thead><tr>${titles.map((title) => html`<th scope="col">${title}</th>`)}</tr></thead>
<tbody>
${rows.map((cells) => html`<tr>${cells.map((cell) => html`<td>${cell}</td>`)}</tr>\n`)}</tbody>
</table></div>`
}

/** A length of time as people say it, the two largest units. */
function span(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000))
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [seconds % 60, 's'],
  ]
  const first = parts.findIndex(([value]) => value > 0)
  if (first === -1) return '0 s'
  return parts
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(' ')
}
