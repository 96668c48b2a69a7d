import type {StateDb} from '../store/state-db.ts'
import {addressOfDeal} from './filter.ts'
import {html} from './html.ts'
import {PLACES} from './http-server.ts'
import {linkOf, listOwn, listShipped, nameOf, viewPage, viewState} from './pages.ts'
import {listTables} from './tables.ts'
import type {AskingView, Page} from './view.ts'

/** Pages beside those of the navigation that an address without more leads to. */
const BESIDE = [
  ['Checks', '/checks'],
  ['Compare', '/compare'],
  ['Quarantine', '/quarantine'],
] as const

/** The pages that a viewer can open. */
function listOpen(view: AskingView): (readonly [title: string, address: string])[] {
  const {mayOpen = () => true} = view
  const places = [...PLACES, ...BESIDE].filter(([, address]) => mayOpen(address))
  const written = [...listOwn(view), ...listShipped(view.pageDirs)].filter(
    ({name}) => !name.includes('/') && places.every(([, address]) => address !== `/${name}`),
  )
  return [...places, ...written.map((page) => [nameOf(page), `/pages/${page.name}`] as const)]
}

/** `/find`: what holds the text `q`, by kind, as far as the viewer may see it; the deal whose id it is, at once. */
export async function viewFind(view: AskingView, stateDb: StateDb): Promise<Page | undefined> {
  const {query, filter, ask, mayOpen = () => true} = view
  const q = (query.get('q') ?? '').trim()
  if (q === '')
    return {
      title: 'Find',
      body: html`<p>Deals by id and address, borrowers by id, pages by title, tables by name, meaning and columns, runs by number and job: as far as you may see them. An id leads to its deal.</p>`,
    }
  const address = linkOf(view)(addressOfDeal(q))
  const sql = 'select 1 from core.deal_history where deal_id = $q limit 1'
  if (address !== undefined && (await ask({sql, params: {q}, isWhole: true})).rows.length > 0)
    return {title: q, body: html``, leadsTo: address}
  const tables = listTables(view).map(({name, description, columns}) => ({name, description, columns}))
  const found = await viewPage('parts/find', view, {params: {q, pages: listOpen(view), tables}})
  const runs = mayOpen('/runs') && (await viewState('parts/found_runs', {stateDb, params: {q}}))?.body
  const only =
    filter.condition !== undefined && html`<p class="muted">Of deals and borrowers, those of the filter.</p>`
  return found && {...found, body: html`${only}${found.body}${runs}`}
}
