import {z} from 'zod'
import {isObject, parseJson} from '../json.ts'
import {type Column, count, countOf, instant, span, table, words} from '../page/figures.ts'
import {type Html, html, prose} from '../page/html.ts'
import {type JobAttempt, listAttempts} from '../state/job-attempts.ts'
import {findJobRun} from '../state/job-runs.ts'
import type {StateDb} from '../state/state-db.ts'
import {describeState} from './runs.ts'
import type {Page} from './view.ts'

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

/** A line of the log, for people; one that is none as it is. */
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

/** What a job printed: the facts of each of its steps; of what webhooks brought there are no steps. */
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

/** Where files lie on the machine is nobody's business here, and each model of a build is too much. */
const NOT_TOLD = new Set(['dir', 'models'])

/** Every value below, named after where it stands. */
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
