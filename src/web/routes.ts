import type {Note} from '../accounting/acts.ts'
import {listStanding} from '../accounting/notes.ts'
import {JOURNAL_NAMES} from '../accounting/profiles.ts'
import {codeOf, explainError} from '../core/errors.ts'
import {readReleaseChecks} from '../store/release.ts'
import {pageOf, wordChecks} from './figures.ts'
import {addressOfDeal, endOfMoment, type Filter} from './filter.ts'
import {html} from './html.ts'
import {PLACES} from './http-server.ts'
import {viewMorning, viewMoved, viewPortfolio} from './morning.ts'
import {listOwn, listShipped, NAME, nameOf} from './page-files.ts'
import {linkOf, type Params, viewPage, viewPages, viewState} from './pages.ts'
import {listReleases} from './reader.ts'
import {viewSql} from './sql.ts'
import {listTables, viewTable, viewTables} from './tables.ts'
import type {AskingView, Page, WebTools} from './view.ts'

const idOfDeal = (id: string) => id.replace(/^~/, '')

/** Undefined for an unknown name. */
type Route = (view: AskingView, id: string) => Promise<Page | undefined> | Page | undefined

/** A shipped page with an answer from the history; undefined for an unknown name. */
const ofHistory =
  (name: string, ask: (view: AskingView, id: string) => Promise<Params>): Route =>
  async (view, id) => {
    const params = await ask(view, id).catch((error: unknown): undefined => {
      if (codeOf(error) !== 'UNKNOWN_NAME') throw error
    })
    return params && viewPage(name, view, {params})
  }

export const ROUTES: Record<string, Route> = {
  '/': async (view) => addNotes(await viewMorning(view), view, 'day', [view.release.manifest.as_of]),
  '/portfolio': viewLimits,
  '/pipeline': (view) => viewPage('pipeline', view),
  '/find': viewFind,
  '/deals': (view) => viewPage('parts/deals', view),
  '/deals/:id': async (view, id) => {
    const deal_id = idOfDeal(id)
    return addNotes(await viewPage('parts/deal', view, {params: {deal_id}}), view, 'deal', [deal_id])
  },
  // Every version of a deal, with the record behind it.
  '/deals/:id/received': ofHistory('parts/received', async ({history}, id) => {
    const deal_id = idOfDeal(id)
    return {deal_id, versions: await history.ask('trace', deal_id)}
  }),
  '/behind/moved': viewMoved,
  '/behind/:id': (view, id) => viewPage(`behind/${id}`, view),
  // Every check; those that found rows first, with the rows.
  '/checks': (view) => {
    const {manifest, dir} = view.release
    const params = {summary: wordChecks(manifest.checks), checks: readReleaseChecks(dir)}
    return viewPage('parts/checks', view, {params})
  },
  // Months: what was issued, what the journal holds, whether it ties out; and the balance each account must show.
  '/books': async (view, id) => {
    const page = await ofHistory('parts/books', ({history}) => history.ask('periods'))(view, id)
    const balances = page && (await viewState('state/balances', {stateDb: view.stateDb, params: {}}))
    return balances ? {...page, body: html`${page.body}${balances.body}`} : page
  },
  '/books/:id': viewBook,
  '/compare': viewCompare,
  // Unreadable records, by reason and page by page.
  '/quarantine': ofHistory('parts/quarantine', ({history, query}) => {
    const [path, reason] = [query.get('path'), query.get('reason')]
    const asked = {page: pageOf(query), ...(path !== null && {path}), ...(reason !== null && {reason})}
    return history.ask('reasons', asked)
  }),
  // One record byte for byte as the source sent it.
  '/quarantine/:id': ofHistory('parts/quarantined', async ({history}, id) => ({
    entry: await history.ask('quarantined', id),
  })),
  '/pages': viewPages,
  '/pages/:id': (view, id) => (NAME.test(id) ? viewPage(id, view, {isAmongOwn: true}) : undefined),
  '/tables': viewTables,
  '/tables/:id': viewTable,
  '/sql': viewSql,
}

async function addNotes(
  page: Page | undefined,
  {stateDb, mayAct}: AskingView,
  about: Note['about'],
  subjects: readonly string[],
): Promise<Page | undefined> {
  const notes = page && (await viewState('state/notes', {stateDb, params: {about, subjects}, mayAct}))
  return notes ? {...page, body: html`${page.body}${notes.body}`} : page
}

/** `/portfolio`, with notes about limits. */
async function viewLimits(view: AskingView): Promise<Page | undefined> {
  const page = await viewPortfolio(view, {notes: listStanding(view.stateDb, 'limit')})
  // The page itself says what of it is missing.
  const named = listTables(view).find(({name}) => name === 'mart.limit_status')
  if (!named?.columns.some(({name}) => name === 'name')) return page
  const {rows} = await view.ask({sql: 'select name from mart.limit_status order by 1', isWhole: true})
  return rows.length === 0 ? page : addNotes(page, view, 'limit', rows.flat().map(String))
}

/** `/books/<YYYY-MM>`: what the next export of a month would issue to the importer in the address; else an issued batch. */
async function viewBook(view: AskingView, period: string): Promise<Page | undefined> {
  if (!/^\d{4}-(0[1-9]|1[0-2])$/.test(period)) {
    const params = {batch_id: period, entry: view.query.get('entry')}
    return await viewState('state/batch', {stateDb: view.stateDb, params})
  }
  const profile = JOURNAL_NAMES.find((name) => name === view.query.get('for')) ?? JOURNAL_NAMES[0] ?? ''
  // If the export would be refused, the page says why.
  const answer = await view.history.ask('preview', profile, period).catch(explainError)
  const [previews, problem] = Array.isArray(answer) ? [answer] : [[], answer.message]
  const params = {period, profile, profiles: JOURNAL_NAMES, previews, problem}
  return await viewPage('parts/preview', view, {params})
}

/** Deals named under a total; the rest are counted. */
const NAMED = 100

/** `/compare`: what was known of a day when the release was built, against the newest release of that day. */
async function viewCompare(view: AskingView): Promise<Page | undefined> {
  const then = view.release.manifest
  const {as_of} = then
  const now =
    listReleases(view.folder.releases).find(({manifest}) => manifest.as_of === as_of)?.manifest ?? then
  const moved =
    then.release_id === now.release_id ? [] : await view.history.ask('diff', then.release_id, now.release_id)
  const whole = moved.filter(({status}) => status === null)
  const params = {
    as_of,
    known_then: then.known_at,
    known_now: now.known_at,
    now_id: now.release_id,
    totals: whole.map(({parts, ...total}) => ({...total, deals: parts.length})),
    parts: whole.flatMap(({parts, total}) => parts.slice(0, NAMED).map((part) => ({...part, total}))),
  }
  return addNotes(await viewPage('parts/compare', view, {params}), view, 'day', [as_of])
}

export function viewNone(
  {stateDb, folder, config}: WebTools,
  {values}: Filter,
  mayAct: boolean,
): Promise<Page | undefined> {
  const kept = [...new Set(listReleases(folder.releases).map(({manifest}) => manifest.as_of))]
  const as_of = values.get('as_of') ?? kept[0]
  const knownAt = values.get('known_at')
  const known_at = knownAt === null ? '' : `${endOfMoment(knownAt, config)}Z`
  const isAsked = values.has('as_of') || values.has('known_at')
  const page = kept.length > 0 && isAsked ? 'state/no_such_release' : 'state/no_release'
  return viewState(page, {stateDb, params: {kept, as_of, known_at}, mayAct})
}

const BESIDE = [
  ['Checks', '/checks'],
  ['Compare', '/compare'],
  ['Quarantine', '/quarantine'],
] as const

function listOpen(view: AskingView): (readonly [title: string, address: string])[] {
  const places = [...PLACES, ...BESIDE].filter(([, address]) => view.mayOpen(address))
  const written = [...listOwn(view), ...listShipped(view.pageDirs)].filter(
    ({name}) => !name.includes('/') && places.every(([, address]) => address !== `/${name}`),
  )
  return [...places, ...written.map((page) => [nameOf(page), `/pages/${page.name}`] as const)]
}

/** `/find`: everything that contains the text `q` and that the viewer may see. A deal's id leads to the deal. */
async function viewFind(view: AskingView): Promise<Page | undefined> {
  const {query, filter, ask, stateDb, mayOpen} = view
  const q = (query.get('q') ?? '').trim()
  if (q === '')
    return {
      title: 'Find',
      body: html`<p>Deals by id and address, borrowers by id, pages by title, tables by name, meaning and columns, issued journal entries and batches by number, runs by number and job: as far as you may see them. An id leads to its deal.</p>`,
    }
  const address = linkOf(view)(addressOfDeal(q))
  const sql = 'select 1 from core.deal_history where deal_id = $q limit 1'
  if (address !== undefined && (await ask({sql, params: {q}, isWhole: true})).rows.length > 0)
    return {title: q, body: html``, leadsTo: address}
  const tables = listTables(view).map(({name, description, columns}) => ({name, description, columns}))
  const found = await viewPage('parts/find', view, {params: {q, pages: listOpen(view), tables}})
  const ofState = async (name: string, path: string) =>
    mayOpen(path) && (await viewState(name, {stateDb, params: {q}}))?.body
  const runs = await ofState('state/found_runs', '/runs')
  const entries = await ofState('state/found_entries', '/books/x')
  const only =
    filter.condition !== undefined && html`<p class="muted">Of deals and borrowers, those of the filter.</p>`
  return found && {...found, body: html`${only}${found.body}${entries}${runs}`}
}
