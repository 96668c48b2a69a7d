import {z} from 'zod'
import {isObject, parseJson} from '../core/json.ts'
import type {Job} from '../schedule/job.ts'
import {findJobRun, type JobAttempt, type JobRun, listAttempts} from '../schedule/job-runs.ts'
import {formatLocal} from '../schedule/slots.ts'
import type {ReleaseManifest} from '../store/release.ts'
import type {StateDb} from '../store/state-db.ts'
import {askFirst, type findHeldBack} from './actions.ts'
import {type Column, count, countOf, figures, instant, span, table, words} from './figures.ts'
import {type Html, html, prose} from './html.ts'
import type {Overview, Page} from './view.ts'

/** What the page of runs shows besides the overview. */
interface Beside {
  /** Whether the viewer may act. */
  mayAct: boolean
  heldBack: ReturnType<typeof findHeldBack>
  /** The last walks; empty without a release. */
  walks: Html | undefined
}

/** The state of a data folder: alarms, release, next slots, last runs, actions, walks, checks. */
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
    inputs: html`<p><label>Why <input name="why" maxlength="500"></label></p>`,
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

/** The result of a run so far, and when a failed one is tried again. */
function describeState({state, attempt, reason, error_code, not_before}: JobRun): Html {
  const isTriedAgain = state === 'queued' && attempt > 0
  const words = html`<b class="${isTriedAgain ? 'failed' : STATE_CLASSES[state]}">${isTriedAgain ? 'failed' : state}</b>`
  if (isTriedAgain) return html`${words}, tried again at ${instant(not_before)}`
  if (state === 'running' && attempt > 1) return html`${words}, attempt ${attempt}`
  const why = state === 'failed' ? error_code : state === 'done' ? null : reason
  return html`${words}${why !== null && `, ${why}`}`
}

/** The style of each state of a run. */
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

/** `/runs/<id>`: a run of a job, how each of its attempts ended and what it logged, and what came of it; undefined of none. */
export function viewRun(stateDb: StateDb, id: string): Page | undefined {
  const run = /^\d{1,15}$/.test(id) ? findJobRun(stateDb, Number(id)) : undefined
  if (!run) return undefined
  const attempts = listAttempts(stateDb, run.job_run_id)
  const began = attempts[0]?.started_at ?? run.started_at
  const body = html`<ul class="facts">
<li>${describeState(run)}</li>
<li>${run.slot === null ? 'asked for on the command line' : html`due at <b>${instant(run.slot)}</b>`}</li>
${began !== null && html`<li>started <b>${instant(began)}</b></li>`}
${run.ended_at !== null && began !== null && html`<li>${run.state === 'running' ? 'last attempt ended' : 'ended'} <b>${instant(run.ended_at)}</b></li>`}
${run.attempt > 1 && html`<li><b>${countOf(run.attempt, 'attempt')}</b></li>`}
</ul>
${renderSummary(parseJson(run.summary ?? ''))}
<h2>Attempts</h2>
${
  attempts.length === 0
    ? html`<p class="empty">None has ended yet.</p>`
    : html`${table(ATTEMPT_COLUMNS, attempts)}${attempts.toReversed().map(renderLog)}`
}`
  return {title: `Run ${id} of ${run.job}`, body}
}

const ATTEMPT_COLUMNS: Column<JobAttempt>[] = [
  {title: 'Attempt', cell: ({attempt}) => String(attempt)},
  {title: 'Started', cell: ({started_at}) => instant(started_at)},
  {title: 'Took', cell: ({started_at, ended_at}) => span(Date.parse(ended_at) - Date.parse(started_at))},
  {
    title: 'Ended',
    cell: ({exit_code, error_code, error}) =>
      error_code === null
        ? html`<b class="passed">well</b>`
        : html`<b class="failed">${error_code}</b>${exit_code !== null && ` (exit ${exit_code})`} ${prose(error ?? '')}`,
  },
]

function renderLog({attempt, log}: JobAttempt, index: number): Html {
  if (log === null) return html`<p class="muted">The log of attempt ${attempt} is where it was started.</p>`
  return html`<details${index === 0 && html` open`}><summary>Log of attempt ${attempt}</summary>
${log === '' ? html`<p class="muted">It logged nothing.</p>` : html`<pre tabindex="0">${log.trimEnd().split('\n').map(describeLine)}</pre>`}</details>`
}

const lineSchema = z.looseObject({level: z.string(), time: z.string(), msg: z.string()})

/** A line of the log, for people; other text unchanged. */
function describeLine(line: string): Html {
  const parsed = lineSchema.safeParse(parseJson(line))
  if (!parsed.success) return html`${line}\n`
  const {level, time, msg, ...fields} = parsed.data
  const values = Object.entries(fields).map(([name, value]) => `${name}=${textOf(value)}`)
  return html`${instant(time)}  ${[level.padEnd(5), msg, ...values].join('  ')}\n`
}

const textOf = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value))

interface Fact {
  name: string
  value: string | number | boolean
}

/** What a job printed: the facts of each of its steps. Webhook runs have no steps. */
function renderSummary(summary: unknown): Html | false {
  if (!isObject(summary)) return false
  const steps = Array.isArray(summary.steps) ? summary.steps.filter(isObject) : [{...summary}]
  const columns: Column<Record<string, unknown>>[] = [
    {title: 'Step', cell: (step) => html`<b>${typeof step.do === 'string' ? words(step.do) : 'all'}</b>`},
    {
      title: 'What came of it',
      cell: ({do: _, ...step}) =>
        html`<ul class="facts">${listFacts(step).map(({name, value}) => html`<li>${name.replace(/ ms$/, '')} <b>${describe(name, value)}</b></li>`)}</ul>`,
    },
  ]
  return html`<h2>Steps</h2>${table(columns, steps)}`
}

/** Left out: paths of the machine, and models and rows that checks found, which are too many. */
const NOT_TOLD = new Set(['dir', 'models', 'results'])

/** All nested values, named by their paths. */
function listFacts(value: unknown, path: readonly string[] = []): Fact[] {
  if (typeof value === 'object' && value !== null) {
    return Object.entries(value)
      .filter(([name]) => !NOT_TOLD.has(name))
      .flatMap(([name, below]) =>
        listFacts(below, name === 'result' || /^\d+$/.test(name) ? path : [...path, words(name)]),
      )
  }
  const isFact = typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'
  return isFact ? [{name: path.join(' '), value}] : []
}

function describe(name: string, value: Fact['value']): string {
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (typeof value === 'string') return value
  return name.endsWith(' ms') ? span(value) : count(value)
}
