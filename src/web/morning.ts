import {realpathSync, statSync} from 'node:fs'
import {dirname} from 'node:path'
import {z} from 'zod'
import type {NotIssued} from '../books/standing.ts'
import {isPast} from '../build/build-folder.ts'
import {readMovedBetween, readMovedSince, type Which} from '../build/movement.ts'
import {addDays, isCalendarDate} from '../core/clock.ts'
import {explainError} from '../core/errors.ts'
import type {Release} from '../store/release.ts'
import {describeFindings} from './checks.ts'
import {instant, linked, pageOf, wordChecks} from './figures.ts'
import {addressOf, hiddenFields} from './filter.ts'
import {type Html, html} from './html.ts'
import {viewPage} from './pages.ts'
import {type History, listReleases, queriesOf} from './reader.ts'
import type {AskingView, Page, View} from './view.ts'

/** A view of a release alone has neither a present state of runs nor a process that reads history. */
type MorningView = View & Partial<Pick<AskingView, 'overview' | 'history'>>

/** What a person has to look at, the most urgent first. */
async function renderNeeds(view: MorningView): Promise<Html> {
  const {alarms = [], notRead} = view.overview ?? {}
  const not_issued = view.history ? await readNotIssued(view.release, view.history) : []
  const params = {alarms, not_read: notRead, not_issued}
  const findings = describeFindings(view, ['limit_is_kept'])
  const all = html`${(await viewPage('parts/needs', view, {params}))?.body}${findings.length > 0 && html`<ul class="needs">${findings.map((finding) => html`<li>${finding}</li>`)}</ul>`}`
  return /<li>|class="failed"/.test(all.html) ? all : html`<p class="passed">Nothing.</p>`
}

/** What of ended months is not issued, or why that is unknown. */
async function readNotIssued(
  {manifest}: Release,
  history: History,
): Promise<NotIssued[] | {problem: string}> {
  try {
    const found = await history.ask('notIssued')
    return found.filter(({period}) => period < manifest.as_of.slice(0, 7))
  } catch (error) {
    return {problem: explainError(error).message}
  }
}

/** A moment to compare with: for addresses, as a name, and in words. */
interface Moment {
  against: string
  name: string
  words: Html | string
}

const momentOf = (day: string): Moment => ({against: day, name: day, words: day})

/** The release that readers saw before this one, whatever its day, as far as it is kept. */
function findSeenBefore({dir, manifest: {release_id, known_at}}: Release): Release | undefined {
  const own = realpathSync(dir)
  return listReleases(dirname(own))
    .filter(
      (other) =>
        other.manifest.release_id !== release_id &&
        !isPast(other.dir) &&
        (other.manifest.known_at < known_at ||
          (other.manifest.known_at === known_at && statSync(other.dir).mtimeMs < statSync(own).mtimeMs)),
    )
    .sort((a, b) => b.manifest.known_at.localeCompare(a.manifest.known_at))[0]
}

/**
 * What moved the figures: since the day that the address asks for, or the release; by default since the day before or, where nothing is
 * known of that, since the release that readers saw before this one.
 */
async function readMoves({ask, release, query, filter, history}: MorningView, asked: Which = {}) {
  const {as_of: asOf} = release.manifest
  const tables = queriesOf(ask)
  const {first} = await tables.one(
    z.object({first: z.string().nullable()}),
    'select min(day) as first from mart.position_daily',
  )
  const before = findSeenBefore(release)
  const earlier: Moment | undefined = before && {
    against: before.manifest.release_id,
    name: 'the release before',
    words: html`the release before, as of ${before.manifest.as_of}, known at ${instant(before.manifest.known_at)}`,
  }
  const wished = query.get('against') ?? ''
  const day = isCalendarDate(wished) ? wished : addDays(asOf, -1)
  const isKnown = first !== null && day >= first && day < asOf
  const found = {first, earlier}
  if (isKnown && wished !== earlier?.against)
    return {...found, since: momentOf(day), ...(await readMovedSince(tables, day, asked))}
  if (!before || isCalendarDate(wished)) return {...found, since: undefined, totals: undefined, moved: []}
  const which = {...asked, condition: filter.condition}
  const between = history
    ? await history.ask('moved', before.manifest.release_id, release.manifest.release_id, which)
    : await readMovedBetween(before, release, which)
  return {...found, since: earlier, ...between}
}

/** `/`: the figures, what moved them since another day, and what needs attention. */
export async function viewMorning(view: MorningView): Promise<Page> {
  const {release, filter, overview} = view
  const {observed_until, known_at, checks} = release.manifest
  const moves = await readMoves(view)
  const {totals, since} = moves
  const next = overview?.next[0]
  const figures = await viewPage('parts/morning', view, {params: {totals, since: since?.name}})
  const body = html`${figures?.body}
${await renderMoves(moves, view)}
<h2>What needs a person</h2>
${await renderNeeds(view)}
<h2>How fresh it is</h2>
<ul class="facts">
<li>last walk of <b>${observed_until}</b></li>
<li>all known at <b>${instant(known_at)}</b></li>
<li><a href="${addressOf('/checks', filter)}">${wordChecks(checks)}</a></li>
${next && html`<li>next: <b>${next.job.name}</b> at ${instant(next.slot)}</li>`}
${overview?.holder && html`<li>running: <b>${overview.holder.command}</b>, ${overview.holder.progress}</li>`}
</ul>`
  return {title: figures?.title ?? '', body}
}

async function renderMoves(
  {since, earlier, first, moved, totals}: Awaited<ReturnType<typeof readMoves>>,
  view: View,
): Promise<Html> {
  const {as_of: asOf} = view.release.manifest
  const monthEnd = addDays(`${asOf.slice(0, 7)}-01`, -1)
  const days = [addDays(asOf, -1), addDays(asOf, -7), monthEnd].filter(
    (day) => first !== null && day >= first,
  )
  const moments = [...[...new Set(days)].sort().toReversed().map(momentOf), ...(earlier ? [earlier] : [])]
  const isDay = since !== undefined && isCalendarDate(since.against)
  const choices = html`<p class="choices">Against ${moments.map(({against, words}) =>
    linked(
      html`<span${against === since?.against && html` aria-current="true"`}>${words}</span> `,
      addressOf('/', view.filter, {against: [against]}),
    ),
  )}</p>${first !== null && first < asOf && html`<form class="against" action="/">${hiddenFields(view.filter)}<label>or <input type="date" name="against" value="${isDay && since.against}" max="${addDays(asOf, -1)}" min="${first}"></label> <button>Compare</button></form>`}`
  if (!since || !totals)
    return html`<h2>What moved it</h2>${moments.length > 0 && choices}<p class="muted">There is no earlier day or release to compare ${asOf} with.</p>`
  const params = {against: since.against, moved, totals}
  return html`<h2>What moved it since ${since.words}</h2>
${choices}
${totals.deals === 0 ? html`<p class="muted">Nothing: no deal has come, gone or changed its amount or class.</p>` : (await viewPage('parts/moved', view, {params}))?.body}`
}

const PER_PAGE = 50

/** `/behind/moved`: every deal that moved the figures; undefined for a moment without comparison. */
export async function viewMoved(view: MorningView): Promise<Page | undefined> {
  const {query} = view
  const beyond = Math.max(0, Math.min(1_000_000, Number.parseInt(query.get('beyond') ?? '', 10) || 0))
  const which = {beyond, offset: (pageOf(query) - 1) * PER_PAGE, limit: PER_PAGE}
  const {since, totals, moved} = await readMoves(view, which)
  if (!since || !totals || since.against !== query.get('against')) return undefined
  const list = await viewPage('behind/moved', view, {params: {moved, totals, per_page: PER_PAGE}})
  return list && {...list, body: html`<p class="muted">Since ${since.words}.</p>\n${list.body}`}
}
