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
type MorningView = View & Partial<Pick<AskingView, 'overview' | 'history'>>

/** What of ended months is not issued, or why that is unknown. */
async function readNotIssued({manifest}: Release, history: History): Promise<unknown> {
  try {
    const found = await history.ask('notIssued')
    return found.filter(({period}) => period < manifest.as_of.slice(0, 7))
  } catch (error) {
    return {problem: explainError(error).message}
  }
}

/** The release that readers saw before this one, whatever its day, as far as it is kept. */
function findSeenBefore(
  {dir, manifest: {known_at}}: Release,
  others: readonly Release[],
): Release | undefined {
  const isBefore = (other: Release) =>
    other.manifest.known_at < known_at ||
    (other.manifest.known_at === known_at &&
      statSync(other.dir).mtimeMs < statSync(realpathSync(dir)).mtimeMs)
  return others
    .filter((other) => !isPast(other.dir) && isBefore(other))
    .sort((a, b) => b.manifest.known_at.localeCompare(a.manifest.known_at))[0]
}

const baseRow = z.object({name: z.string(), title: z.string(), day: z.string(), is_known: z.boolean()})

/**
 * What figures are compared with, and what moved them since: the day or release that the address asks for; by default the day before
 * or, where nothing is known of that, the release that readers saw before this one.
 *
 * @returns for the SQL of pages: `bases` to choose from, `against` the name of the chosen one, `since` in words, `other` a release, and
 *   the movements, if anything is known of then
 */
async function compare({ask, release, filter, history}: MorningView, which: Which = {}) {
  const tables = queriesOf(ask)
  const [wished] = filter.values.get('against') ?? []
  const days = await tables.all(baseRow, readQuery('bases'), [wished ?? 'day'])
  const idOf = ({manifest}: Release) => manifest.release_id
  const others = listReleases(dirname(realpathSync(release.dir))).filter((one) => idOf(one) !== idOf(release))
  const before = findSeenBefore(release, others)
  const base = days.find(
    ({name, is_known}) => name === (wished ?? 'day') && (wished !== undefined || is_known),
  )
  const other = wished === undefined ? before : others.find((one) => idOf(one) === wished)
  const bases = [
    ...days.filter((day) => day.is_known || day === base),
    ...(before ? [{name: idOf(before), title: 'release before'}] : []),
  ]
  if (base)
    return {
      bases,
      against: base.name,
      since: base.day,
      ...(base.is_known && (await readMovedSince(tables, base.day, which))),
    }
  if (!other) return {bases, against: wished, since: wished && `release ${wished}`}
  const {release_id, as_of, known_at} = other.manifest
  const asked = {...which, condition: filter.condition}
  const moved = history
    ? await history.ask('moved', release_id, release.manifest.release_id, asked)
    : await readMovedBetween(other, release, asked)
  const since = other === before ? 'the release before' : `release ${release_id}`
  return {bases, against: release_id, since, other: {as_of, known_at}, ...moved}
}

/** What {@link compare} tells is not for an address to say. */
export const NOTHING_COMPARED: Params = {bases: undefined, since: undefined, totals: undefined}

/** `/`: the figures, what moved them since another day, and what needs attention. */
export async function viewMorning(view: MorningView): Promise<Page> {
  const {release, overview, history} = view
  const {as_of, observed_until, known_at, checks} = release.manifest
  const {alarms = [], notRead, next = [], holder} = overview ?? {}
  const params = {
    ...NOTHING_COMPARED,
    ...(await compare(view)),
    as_of,
    observed_until,
    known_at,
    checked: wordChecks(checks),
    checks: readReleaseChecks(release.dir),
    alarms,
    not_read: notRead,
    not_issued: history && (await readNotIssued(release, history)),
    next: next[0] && {name: next[0].job.name, slot: new Date(next[0].slot).toISOString()},
    running: holder && `${holder.command}, ${holder.progress}`,
  }
  const show = async (part: string) => await viewPage(`parts/${part}`, view, {params})
  const figures = await show('morning')
  const needs = (await show('needs'))?.body ?? html``
  const body: Html = html`${figures?.body}
${(await show('moved'))?.body}
<h2>What needs a person</h2>
${/<li>|class="failed"/.test(needs.html) ? needs : html`<p class="passed">Nothing.</p>`}
${(await show('fresh'))?.body}`
  return {title: figures?.title ?? '', body}
}

/** `/checks`: every check of the release, those that found rows first, with the rows. */
export const viewChecks = async (view: View): Promise<Page | undefined> =>
  await viewPage('parts/checks', view, {
    params: {
      summary: wordChecks(view.release.manifest.checks),
      checks: readReleaseChecks(view.release.dir),
    },
  })

/** `/portfolio` */
export const viewPortfolio = async (view: MorningView): Promise<Page | undefined> =>
  await viewPage('portfolio', view, {params: {...NOTHING_COMPARED, ...(await compare(view))}})

const PER_PAGE = 50

/** `/behind/moved`: every deal that moved the figures; undefined for a moment without comparison. */
export async function viewMoved(view: MorningView): Promise<Page | undefined> {
  const {query} = view
  const beyond = Math.max(0, Math.min(1_000_000, Number.parseInt(query.get('beyond') ?? '', 10) || 0))
  const which = {beyond, offset: (pageOf(query) - 1) * PER_PAGE, limit: PER_PAGE}
  const compared = await compare(view, which)
  const params = {...NOTHING_COMPARED, ...compared, per_page: PER_PAGE}
  return 'totals' in compared ? await viewPage('behind/moved', view, {params}) : undefined
}
