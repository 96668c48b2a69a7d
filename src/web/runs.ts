import {z} from 'zod'
import {parseJson} from '../core/json.ts'
import {type JobAttempt, listAttempts} from '../schedule/job-runs.ts'
import {formatLocal} from '../schedule/slots.ts'
import type {StateDb} from '../store/state-db.ts'
import {findHeldBack} from './actions.ts'
import {instant, wordChecks} from './figures.ts'
import {type Html, html} from './html.ts'
import {viewState} from './pages.ts'
import type {Overview, Page, WebTools} from './view.ts'

/** What the page of runs shows besides the overview: whether the viewer may act, and the last walks of a release. */
type Beside = Pick<WebTools, 'stateDb' | 'config'> & {mayAct: boolean; walks: Html | undefined}

/** `/runs`: alarms, release, next slots, last runs, actions, walks. */
export async function viewRuns(overview: Overview, beside: Beside): Promise<Page | undefined> {
  const {now, alarms, holder, queued, release, next} = overview
  const {stateDb, config, mayAct, walks} = beside
  const page = await viewState('parts/runs', {
    stateDb,
    mayAct,
    params: {
      now: new Date(now).toISOString(),
      now_ms: now,
      alarms,
      running: holder && `${holder.command}, ${holder.progress}`,
      queued: queued.length,
      held_back: findHeldBack(stateDb),
      next: next.map(({job: {name, steps, timeZone}, slot}) => ({
        job: name,
        slot,
        due: new Date(slot).toISOString(),
        in_its_time_zone: `${formatLocal(slot, timeZone)} ${timeZone}`,
        steps: steps.map((step) => step.do).join(', '),
      })),
      takes_webhooks: config.webhookSecret && 1,
      ...(release && {...release, checks: wordChecks(release.checks)}),
    },
  })
  return page && {...page, body: html`${page.body}${walks}`}
}

/** `/runs/<id>`: a run of a job, how each of its attempts ended and what it logged, and what came of it; undefined of none. */
export async function viewRun(stateDb: StateDb, id: string): Promise<Page | undefined> {
  const page = /^\d{1,15}$/.test(id) ? await viewState('parts/run', {stateDb, params: {id}}) : undefined
  const logs = page && listAttempts(stateDb, Number(id)).toReversed().map(renderLog)
  return page && {...page, body: html`${page.body}${logs}`}
}

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
  const textOf = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value))
  const values = Object.entries(fields).map(([name, value]) => `${name}=${textOf(value)}`)
  return html`${instant(time)}  ${[level.padEnd(5), msg, ...values].join('  ')}\n`
}
