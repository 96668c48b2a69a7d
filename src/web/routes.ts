import {JOURNAL_NAMES} from '../accounting/profiles.ts'
import {isCalendarDate, parseInstant} from '../core/clock.ts'
import {codeOf, explainError} from '../core/errors.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {renderAction} from './blocks.ts'
import {pageOf} from './figures.ts'
import type {Filter} from './filter.ts'
import {type Html, html} from './html.ts'
import {NOTHING_COMPARED, viewChecks, viewMorning, viewMoved, viewPortfolio} from './morning.ts'
import {NAME, type Params, viewPage, viewPages} from './pages.ts'
import {listReleases} from './reader.ts'
import {viewSql} from './sql.ts'
import {viewTable, viewTables} from './tables.ts'
import type {AskingView, Page} from './view.ts'

const idOfDeal = (id: string) => id.replace(/^~/, '')

/** A page of a release; undefined of an unknown name. */
type Route = (view: AskingView, id: string) => Promise<Page | undefined> | Page | undefined

/** A page of `pages/` that shows what the history answers; undefined where it knows no such name. */
const ofHistory =
  (name: string, ask: (view: AskingView, id: string) => Promise<Params>): Route =>
  async (view, id) => {
    const params = await ask(view, id).catch((error: unknown): undefined => {
      if (codeOf(error) !== 'UNKNOWN_NAME') throw error
    })
    return params && viewPage(name, view, {params})
  }

/** What each address shows of a release: a file of `pages/`, what the program gives it, or both by a function. */
export const ROUTES: Record<string, Route> = {
  '/': viewMorning,
  '/portfolio': viewPortfolio,
  '/pipeline': (view) => viewPage('pipeline', view),
  '/deals': (view) => viewPage('parts/deals', view),
  '/deals/:id': (view, id) => viewPage('parts/deal', view, {params: {deal_id: idOfDeal(id)}}),
  // Every version of a deal with the record that told it.
  '/deals/:id/received': ofHistory('parts/received', async ({history}, id) => {
    const deal_id = idOfDeal(id)
    return {deal_id, versions: await history.ask('trace', deal_id)}
  }),
  '/behind/moved': viewMoved,
  '/behind/:id': (view, id) => viewPage(`behind/${id}`, view),
  '/checks': viewChecks,
  // The months, what was issued, what the journal holds, and whether it ties out.
  '/books': ofHistory('parts/books', ({history}) => history.ask('periods')),
  '/books/:id': viewPreview,
  '/compare': viewCompare,
  // The records that could not be read, by reason, and page by page.
  '/quarantine': ofHistory('parts/quarantine', ({history, query}) => {
    const [path, reason] = [query.get('path'), query.get('reason')]
    const asked = {page: pageOf(query), ...(path !== null && {path}), ...(reason !== null && {reason})}
    return history.ask('reasons', asked)
  }),
  // One record whole, byte for byte as its source sent it.
  '/quarantine/:id': ofHistory('parts/quarantined', async ({history}, id) => ({
    entry: await history.ask('quarantined', id),
  })),
  '/pages': viewPages,
  '/pages/:id': (view, id) =>
    NAME.test(id)
      ? viewPage(id, view, {isAmongOwn: true, params: id === 'portfolio' ? NOTHING_COMPARED : {}})
      : undefined,
  '/tables': viewTables,
  '/tables/:id': viewTable,
  '/sql': viewSql,
}

/** `/books/<YYYY-MM>`: what the next export of a month would hand out, for the importer that the address names; undefined of no month. */
async function viewPreview(view: AskingView, period: string): Promise<Page | undefined> {
  if (!/^\d{4}-(0[1-9]|1[0-2])$/.test(period)) return undefined
  const profile = JOURNAL_NAMES.find((name) => name === view.query.get('for')) ?? JOURNAL_NAMES[0] ?? ''
  // If the export would be refused, the page says why.
  const answer = await view.history.ask('preview', profile, period).catch(explainError)
  const shown = Array.isArray(answer)
    ? {previews: answer, problem: undefined}
    : {previews: [], problem: answer.message}
  return await viewPage('parts/preview', view, {params: {period, profile, profiles: JOURNAL_NAMES, ...shown}})
}

/** How many deals are named under a total; the others are counted. */
const NAMED = 100

/** `/compare`: what was believed of a day when the release was built, against what the newest release of that day says. */
async function viewCompare(view: AskingView): Promise<Page | undefined> {
  const then = view.release.manifest
  const {as_of} = then
  const now =
    listReleases(view.folder.releases).find(({manifest}) => manifest.as_of === as_of)?.manifest ?? then
  const isNewest = then.release_id === now.release_id
  const moved = isNewest ? [] : await view.history.ask('diff', then.release_id, now.release_id)
  const whole = moved.filter(({status}) => status === null)
  const params = {
    as_of,
    known_then: then.known_at,
    known_now: now.known_at,
    now_id: now.release_id,
    totals: whole.map(({parts, ...total}) => ({...total, deals: parts.length})),
    parts: whole.flatMap(({parts, total}) => parts.slice(0, NAMED).map((part) => ({...part, total}))),
  }
  const page = await viewPage('parts/compare', view, {params})
  const offer = isNewest && view.mayAct && offerBuild(as_of, '')
  return page && {...page, body: html`${page.body}${offer}`}
}

/** Why there is nothing to show, and what to do about it. */
export function describeNone(folder: DataFolder, {values}: Filter, mayAct: boolean): Page {
  const kept = [...new Set(listReleases(folder.releases).map(({manifest}) => manifest.as_of))]
  if (kept.length === 0)
    return {
      title: 'No release yet',
      body: html`<p>The first <code>loantape sync</code> makes one; until then there is nothing to show. <a href="/runs">Runs</a> shows what is under way.</p>`,
    }
  const [asOf = kept[0] ?? ''] = values.get('as_of') ?? []
  const [knownAt = ''] = values.get('known_at') ?? []
  return {
    title: 'No such release',
    body: html`<p>None of this day and moment is kept. Any past one can be built again: <code>loantape build --as-of</code>.</p>
${mayAct && offerBuild(asOf, knownAt)}
<p>There are, by day:</p>
<ul>${kept.map((day) => html`<li><a href="/?as_of=${day}">${day}</a></li>`)}</ul>`,
  }
}

/** A form that builds the release of a day, as it was known at the end of a day, or at an instant in UTC. */
function offerBuild(asOf: string, knownAt: string): Html | false {
  const instant = isCalendarDate(knownAt)
    ? `${knownAt}T23:59:59.999999Z`
    : knownAt === ''
      ? ''
      : `${knownAt}Z`
  if (!isCalendarDate(asOf) || (instant !== '' && parseInstant(instant) === null)) return false
  const known = instant === '' ? 'all that is known today' : `what was known by ${instant}`
  const words = instant === '' ? '' : ` --known-at ${instant}`
  return renderAction({
    title: `Build the release of ${asOf}`,
    do: 'build',
    as_of: asOf,
    known_at: instant,
    says: `It holds ${known}, and lies beside the current one, which stays (\`loantape build --as-of ${asOf}${words}\`).`,
    button: 'Build it',
  })
}
