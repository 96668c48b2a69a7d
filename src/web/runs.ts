import {z} from 'zod'
import {parseJson} from '../core/json.ts'
import {quantity} from '../core/money.ts'
import {type JobAttempt, listAttempts} from '../schedule/job-runs.ts'
import {formatLocal} from '../schedule/slots.ts'
import type {StateDb} from '../store/state-db.ts'
import {askFirst, type findHeldBack} from './actions.ts'
import {type Block, renderObjects} from './blocks.ts'
import {instant, span, wordChecks} from './figures.ts'
import {parseFilter} from './filter.ts'
import {type Html, html, prose} from './html.ts'
import {viewPage} from './pages.ts'
import type {Overview, Page} from './view.ts'

/** A page of ours over the state database; nobody's own takes its place, since it reads more than a release. */
const viewState = ({db}: StateDb, name: string, params: Record<string, string> = {}) =>
  viewPage(
    name,
    {
      filter: parseFilter(new URLSearchParams()),
      query: new URLSearchParams(),
      sqlDir: undefined,
      async ask(asked): Promise<Block> {
        const statement = db.prepare(asked.sql)
        statement.setAllowUnknownNamedParameters(true)
        const objects = statement.all(params)
        return {
          columns: statement.columns().map(({name, type}) => ({name, type: type ?? ''})),
          rows: objects.map((row) => Object.values(row).map(withInstant)),
        }
      },
    },
    {params},
  )

/** Instants of the state database are text. */
const withInstant = (value: unknown) =>
  typeof value === 'string' && /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(value) ? instant(value) : value

/** What the page of runs shows besides the overview. */
interface Beside {
  stateDb: StateDb
  /** Whether webhooks are received. */
  takesWebhooks: boolean
  /** Whether the viewer may act. */
  mayAct: boolean
  heldBack: ReturnType<typeof findHeldBack>
  /** The last walks; empty without a release. */
  walks: Html | undefined
}

/** `/runs`: alarms, release, next slots, last runs, actions, walks. */
export async function viewRuns(overview: Overview, beside: Beside): Promise<Page> {
  const {now, alarms, holder, queued, release} = overview
  const {stateDb, takesWebhooks, mayAct, heldBack, walks} = beside
  const figures = {
    now: String(now),
    ...(takesWebhooks && {takes_webhooks: '1'}),
    ...(release && {as_of: release.as_of, checks: wordChecks(release.checks)}),
  }
  const body = html`<ul class="facts">
<li>${alarms.length === 0 ? html`<b class="passed">no alarms</b>` : html`<b class="failed">${quantity(alarms.length, 'alarm')}</b>`}</li>
<li>${holder ? html`running: <b>${holder.command}</b>, ${holder.progress}` : html`<b>idle</b>`}</li>
<li><b>${queued.length}</b> queued</li>
<li>as seen at <b>${instant(now)}</b></li>
</ul>
${alarms.map(({title, words, since}) => html`<p class="notice"><b class="failed">${title}</b> since ${instant(since)}. ${prose(words)} What to do stands in docs/operations.md.</p>`)}
${heldBack && renderHeldBack(heldBack, mayAct)}
${(await viewState(stateDb, 'parts/last_sync', figures))?.body}
<h2>Next slots</h2>
${renderNext(overview, mayAct)}
${(await viewState(stateDb, 'parts/runs'))?.body}
${walks}
${
  release &&
  html`<h2>Current release</h2>
<p><span class="mono">${release.release_id}</span>, which holds everything known at ${instant(release.known_at)}. <a href="/checks">${wordChecks(release.checks)}</a>.</p>`
}`
  return {title: 'Runs', body}
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

const renderNext = ({now, next}: Overview, mayAct: boolean): Html =>
  renderObjects(
    'table',
    next.map(({job: {name, steps, timeZone}, slot}) => {
      const does = steps.map((step) => step.do).join(', ')
      const form = () =>
        askFirst(`Run ${name}`, {
          asked: {do: 'run', job: name},
          says: `Queues a run of ${name} (${does}). It starts within seconds, or when what goes on has ended.`,
          button: `Run ${name}`,
        })
      return {
        job: html`<b>${name}</b>`,
        due_in: span(slot - now),
        due: instant(slot),
        in_its_time_zone: html`${formatLocal(slot, timeZone)} <span class="muted">${timeZone}</span>`,
        steps: does,
        ...(mayAct && {now: form()}),
      }
    }),
    {empty: 'No job is scheduled here.'},
  )

/** `/runs/<id>`: a run of a job, how each of its attempts ended and what it logged, and what came of it; undefined of none. */
export async function viewRun(stateDb: StateDb, id: string): Promise<Page | undefined> {
  const page = /^\d{1,15}$/.test(id) ? await viewState(stateDb, 'parts/run', {id}) : undefined
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
