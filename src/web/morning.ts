import {realpathSync, statSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {z} from 'zod'
import {isPast} from '../build/build-folder.ts'
import {readMovedBetween, readMovedSince, type Which} from '../build/movement.ts'
import {explainError} from '../core/errors.ts'
import {readAhead} from '../source/walk-pages.ts'
import {type Release, readRelease, readReleaseChecks, unlessDamaged} from '../store/release.ts'
import {readQuery} from '../store/sql.ts'
import {pageOf, wordChecks} from './figures.ts'
import {isMoving} from './filter.ts'
import {needsOf} from './page-files.ts'
import {type Params, viewPage} from './pages.ts'
import {listReleases, queriesOf} from './reader.ts'
import type {AskingView, Page, View} from './view.ts'

/** A report has a release only: no runs, no history. */
type MorningView = View & Partial<Pick<AskingView, 'overview' | 'history' | 'mayAct'>>

/** `is_before`: readers saw it before this release. */
function listOthers({dir, manifest: {release_id, known_at}}: Release) {
  const own = realpathSync(dir)
  const isBefore = ({dir: other, manifest}: Release) =>
    !isPast(other) &&
    (manifest.known_at < known_at ||
      (manifest.known_at === known_at && statSync(other).mtimeMs < statSync(own).mtimeMs))
  return listReleases(dirname(own)).flatMap((other) => {
    const {release_id: name, as_of, known_at} = other.manifest
    return name === release_id ? [] : {name, as_of, known_at, is_before: isBefore(other)}
  })
}

const baseRow = z.looseObject({
  name: z.string(),
  day: z.string().nullable(),
  since: z.string(),
  as_of: z.string().nullable(),
  known_at: z.string().nullable(),
  is_known: z.boolean(),
  is_chosen: z.boolean(),
})

/**
 * Compares the release with what `against` in the address asks for. Returns parameters for the SQL of pages: `bases` to choose
 * from, the chosen `base`, and the movements since, if known. `which` is for a page without figures.
 */
async function compare({ask, release, filter, history}: MorningView, which?: Which): Promise<Params> {
  const tables = queriesOf(ask)
  const wished = filter.values.get('against') ?? ''
  const others = listOthers(release)
  const bases = await tables.all(baseRow, readQuery('bases'), [wished, JSON.stringify(others)])
  const base = bases.find(({is_chosen}) => is_chosen)
  // An unknown base has no movements.
  const told = {bases, base, totals: undefined, moved: undefined}
  if (!base?.is_known) return told
  if (base.day !== null && !isMoving(filter))
    return {...told, ...(await readMovedSince(tables, base.day, which))}
  // Only a release of that day knows which deals had a status or an amount then.
  const ofDay = others.filter(({as_of}) => as_of === base.day)
  ofDay.sort((a, b) => (a.known_at < b.known_at ? 1 : -1))
  // The last that readers saw, else the one that knows most.
  const kept = base.day === null ? base : (ofDay.find(({is_before}) => is_before) ?? ofDay[0])
  if (!kept) return {...told, base: {...base, day: null, since: `${base.since}, of which no release is kept`}}
  const shown = {...told, base: {...base, day: null, as_of: kept.as_of, known_at: kept.known_at}}
  const asked = {...which, condition: filter.condition}
  if (history) {
    // Another process makes the tables of the figures meanwhile. What fails there fails again, and is said, once they ask.
    if (!which) void readAhead(ask({sql: `from ${needsOf('parts/figures').join(', ')} limit 0`}))
    return {...shown, ...(await history.ask('moved', kept.name, release.manifest.release_id, asked))}
  }
  const other = unlessDamaged(() => readRelease(join(dirname(realpathSync(release.dir)), kept.name)))
  // Retention may have removed it meanwhile.
  return other ? {...shown, ...(await readMovedBetween(other, release, asked))} : told
}

export async function viewMorning(view: MorningView): Promise<Page | undefined> {
  const {release, overview, history} = view
  const {as_of, observed_until, known_at, checks} = release.manifest
  const {alarms = [], next = [], holder} = overview ?? {}
  // Runs in another process meanwhile.
  const notIssued = history
    ?.ask('notIssued')
    .catch((error: unknown) => ({problem: explainError(error).message}))
  const params = {
    ...(await compare(view)),
    as_of,
    observed_until,
    known_at,
    checked: wordChecks(checks),
    checks: readReleaseChecks(release.dir),
    is_filtered: view.filter.condition === undefined ? undefined : 'yes',
    alarms,
    not_issued: await notIssued,
    next: next[0] && {name: next[0].job.name, slot: new Date(next[0].slot).toISOString()},
    running: holder && `${holder.command}, ${holder.progress}`,
  }
  return await viewPage('parts/morning', view, {params})
}

export const viewPortfolio = async (view: MorningView, told: Params = {}): Promise<Page | undefined> =>
  await viewPage('portfolio', view, {params: {...(await compare(view)), ...told}})

const PER_PAGE = 50

/** Undefined if there is nothing to compare with. */
export async function viewMoved(view: MorningView): Promise<Page | undefined> {
  const {query} = view
  const beyond = Math.max(0, Math.min(1_000_000, Number.parseInt(query.get('beyond') ?? '', 10) || 0))
  const which = {beyond, offset: (pageOf(query) - 1) * PER_PAGE, limit: PER_PAGE}
  const compared = await compare(view, which)
  const params = {...compared, per_page: PER_PAGE}
  return compared.totals === undefined ? undefined : await viewPage('behind/moved', view, {params})
}
