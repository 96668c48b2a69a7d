import {realpathSync, statSync} from 'node:fs'
import {dirname} from 'node:path'
import {z} from 'zod'
import {isPast} from '../build/build-folder.ts'
import {readMovedBetween, readMovedSince, type Which} from '../build/movement.ts'
import {explainError} from '../core/errors.ts'
import {type Release, readReleaseChecks} from '../store/release.ts'
import {readQuery} from '../store/sql.ts'
import {pageOf, wordChecks} from './figures.ts'
import {type Html, html} from './html.ts'
import {type Params, viewPage} from './pages.ts'
import {type History, listReleases, queriesOf} from './reader.ts'
import type {AskingView, Page, View} from './view.ts'

/** A view of a release alone has neither a present state of runs nor a process that reads history. */
type MorningView = View & Partial<Pick<AskingView, 'overview' | 'history' | 'mayAct'>>

/** What of ended months is not issued, or why that is unknown. */
async function readNotIssued(history: History): Promise<unknown> {
  try {
    return await history.ask('notIssued')
  } catch (error) {
    return {problem: explainError(error).message}
  }
}

/** The other kept releases; before are those that readers saw before this one, whatever their day. */
function listOthers({dir, manifest: {release_id, known_at}}: Release) {
  const own = realpathSync(dir)
  const isBefore = ({dir: other, manifest}: Release) =>
    !isPast(other) &&
    (manifest.known_at < known_at ||
      (manifest.known_at === known_at && statSync(other).mtimeMs < statSync(own).mtimeMs))
  return listReleases(dirname(own)).flatMap((release) => {
    const {release_id: name, as_of, known_at} = release.manifest
    return name === release_id ? [] : {release, name, as_of, known_at, is_before: isBefore(release)}
  })
}

const baseRow = z.looseObject({
  name: z.string(),
  day: z.string().nullable(),
  is_known: z.boolean(),
  is_chosen: z.boolean(),
})

/**
 * What figures are compared with, as the address asks for, and what moved them since.
 *
 * @returns for the SQL of pages: the `bases` to choose from, the `base` that is chosen and, if anything is known of it, the movements
 */
async function compare({ask, release, filter, history}: MorningView, which: Which = {}): Promise<Params> {
  const tables = queriesOf(ask)
  const [wished = ''] = filter.values.get('against') ?? []
  const others = listOthers(release)
  const listed = JSON.stringify(others.map(({release: _, ...told}) => told))
  const bases = await tables.all(baseRow, readQuery('bases'), [wished, listed])
  const base = bases.find(({is_chosen}) => is_chosen)
  const told = {...NOTHING_COMPARED, bases, base}
  if (!base?.is_known) return told
  if (base.day !== null) return {...told, ...(await readMovedSince(tables, base.day, which))}
  const before = others.find(({name}) => name === base.name)?.release ?? release
  const asked = {...which, condition: filter.condition}
  const moved = history
    ? await history.ask('moved', base.name, release.manifest.release_id, asked)
    : await readMovedBetween(before, release, asked)
  return {...told, ...moved}
}

/** What {@link compare} tells, and what was noted, is not for an address to say. */
export const NOTHING_COMPARED: Params = {
  bases: undefined,
  base: undefined,
  totals: undefined,
  moved: undefined,
  notes: undefined,
}

/** `/`: the figures, what moved them since another day, and what needs attention. */
export async function viewMorning(view: MorningView): Promise<Page> {
  const {release, overview, history} = view
  const {as_of, observed_until, known_at, checks} = release.manifest
  const {alarms = [], notRead, next = [], holder} = overview ?? {}
  const params = {
    ...(await compare(view)),
    as_of,
    observed_until,
    known_at,
    checked: wordChecks(checks),
    checks: readReleaseChecks(release.dir),
    alarms,
    not_read: notRead,
    not_issued: history && (await readNotIssued(history)),
    next: next[0] && {name: next[0].job.name, slot: new Date(next[0].slot).toISOString()},
    running: holder && `${holder.command}, ${holder.progress}`,
  }
  const problems: string[] = []
  const rows: Record<string, number> = {}
  const show = async (part: string) => {
    const page = await viewPage(`parts/${part}`, view, {params})
    problems.push(...(page?.problems ?? []))
    Object.assign(rows, page?.rows)
    return page
  }
  const figures = await show('morning')
  const moved = (await show('moved'))?.body
  const needs = html`${(await show('needs'))?.body}${(await show('findings'))?.body}`
  const isEmpty = needs.html.replaceAll(/<[^>]*>/g, '').trim() === ''
  const body: Html = html`${figures?.body}
${moved}
<h2>What needs a person</h2>
${isEmpty ? html`<p class="passed">Nothing.</p>` : needs}
${(await show('fresh'))?.body}`
  return {title: figures?.title ?? '', body, problems, rows}
}

/** `/portfolio` */
export const viewPortfolio = async (view: MorningView, told: Params = {}): Promise<Page | undefined> =>
  await viewPage('portfolio', view, {params: {...(await compare(view)), ...told}})

const PER_PAGE = 50

/** `/behind/moved`: every deal that moved the figures; undefined for a moment without comparison. */
export async function viewMoved(view: MorningView): Promise<Page | undefined> {
  const {query} = view
  const beyond = Math.max(0, Math.min(1_000_000, Number.parseInt(query.get('beyond') ?? '', 10) || 0))
  const which = {beyond, offset: (pageOf(query) - 1) * PER_PAGE, limit: PER_PAGE}
  const compared = await compare(view, which)
  const params = {...compared, per_page: PER_PAGE}
  return compared.totals === undefined ? undefined : await viewPage('behind/moved', view, {params})
}
