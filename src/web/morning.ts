import {realpathSync, statSync} from 'node:fs'
import {dirname} from 'node:path'
import type {NotIssued} from '../books/standing.ts'
import {isPast} from '../build/build-folder.ts'
import {PARTS, readMovedBetween, readMovedSince, type Which} from '../build/movement.ts'
import {computedRow} from '../build/release-row.ts'
import {addDays, isCalendarDate} from '../core/clock.ts'
import {centsOf, quantity} from '../core/money.ts'
import type {Release} from '../store/release.ts'
import {describeFindings} from './data-quality.ts'
import {dollars, instant, linked, pageOf, renderPages, wordChecks} from './figures.ts'
import {addressOf, hiddenFields} from './filter.ts'
import {type Html, html, prose} from './html.ts'
import {viewPage} from './pages.ts'
import {listReleases, queriesOf} from './reader.ts'
import type {Overview, Page, View} from './view.ts'

/** A movement with its sign; a dash for zero. */
function signed(amount: string): string {
  const cents = centsOf(amount)
  return cents === 0n ? '–' : `${cents > 0n ? '+' : ''}${dollars(amount)}`
}

/** What a person has to look at, the most urgent first. */
async function renderNeeds(
  view: View,
  {
    alarms,
    lastSync,
    notIssued,
  }: Pick<Overview, 'alarms' | 'lastSync'> & {notIssued: readonly NotIssued[] | string},
): Promise<Html> {
  const quarantined = lastSync?.walk.quarantined ?? 0
  const others = [
    quarantined > 0 &&
      html`<a href="/quarantine">${quantity(quarantined, 'record')}</a> of the last walk could not be read`,
    typeof notIssued === 'string' &&
      html`<b class="warned">What is not issued is not known</b>: ${notIssued}`,
    ...(typeof notIssued === 'string' ? [] : notIssued).map(
      ({period, profile, entries, amount}) =>
        html`<a href="/books/${period}?for=${profile}">${quantity(entries, 'entry')}</a> of ${dollars(amount)} of ${period} ${entries === 1 ? 'is' : 'are'} not issued to ${profile}`,
    ),
    ...describeFindings(view, ['limit_is_kept']),
  ]
  // Limits are listed one by one, each with its deals.
  const raised = alarms
    .filter(({name}) => name !== 'limits')
    .map(
      ({title, words, since}) =>
        html`<b class="failed">${title}</b> since ${instant(since)}. ${prose(words)} See <a href="/runs">runs</a>.`,
    )
  const listed = (needs: readonly (Html | false)[]) =>
    needs.some(Boolean) && html`<ul class="needs">${needs.map((need) => need && html`<li>${need}</li>`)}</ul>`
  const all = html`${listed(raised)}${(await viewPage('parts/needs', view))?.body}${listed(others)}`
  return /<li>|class="failed"/.test(all.html) ? all : html`<p class="passed">Nothing.</p>`
}

/** The present state of runs and alarms. */
type Now = Pick<Overview, 'alarms' | 'lastSync' | 'next' | 'holder'> & {
  notIssued: readonly NotIssued[] | string
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
  const isBefore = (other: Release) =>
    other.manifest.known_at < known_at ||
    (other.manifest.known_at === known_at && statSync(other.dir).mtimeMs < statSync(own).mtimeMs)
  return listReleases({releases: dirname(own)})
    .filter((other) => other.manifest.release_id !== release_id && !isPast(other.dir) && isBefore(other))
    .reduce<Release | undefined>(
      (last, other) => (last && last.manifest.known_at >= other.manifest.known_at ? last : other),
      undefined,
    )
}

/**
 * What moved the figures: since the day that the address asks for, or the release; by default since the day before or, where nothing is
 * known of that, since the release that readers saw before this one.
 */
async function readMoves(
  {ask, release, query, filter}: View,
  readBetween: typeof readMovedBetween = readMovedBetween,
  which: Which = {},
) {
  const {as_of: asOf} = release.manifest
  const tables = queriesOf(ask)
  const {first} = await tables.one(
    computedRow({first: 'text?'}),
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
    return {...found, since: momentOf(day), ...(await readMovedSince(tables, day, which))}
  const {condition} = filter
  return before && !isCalendarDate(wished)
    ? {...found, since: earlier, ...(await readBetween(before, release, {...which, condition}))}
    : {...found, since: undefined, totals: undefined, moved: []}
}

/** `/`: the figures, what moved them since another day, and what needs attention. */
export async function viewMorning(
  view: View,
  overview: Now,
  readBetween?: typeof readMovedBetween,
): Promise<Page> {
  const {release, filter} = view
  const {observed_until, known_at, checks} = release.manifest
  const moves = await readMoves(view, readBetween)
  const {totals, since} = moves
  const sinceThen = PARTS.map((part): [string, string | undefined] => [
    `${part}_moved`,
    totals && `${centsOf(totals[part]) === 0n ? 'unchanged' : signed(totals[part])} since ${since?.name}`,
  ])
  const figures = await viewPage('parts/morning', view, {params: Object.fromEntries(sinceThen)})
  const body = html`${figures?.body}
${await renderMoves(moves, view)}
<h2>What needs a person</h2>
${await renderNeeds(view, overview)}
<h2>How fresh it is</h2>
<ul class="facts">
<li>last walk of <b>${observed_until}</b></li>
<li>all known at <b>${instant(known_at)}</b></li>
<li><a href="${addressOf('/checks', filter)}">${wordChecks(checks)}</a></li>
${overview.next[0] && html`<li>next: <b>${overview.next[0].job.name}</b> at ${instant(overview.next[0].slot)}</li>`}
${overview.holder && html`<li>running: <b>${overview.holder.command}</b>, ${overview.holder.progress}</li>`}
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
  const params = {against: since.against, moved: JSON.stringify(moved), totals: JSON.stringify(totals)}
  return html`<h2>What moved it since ${since.words}</h2>
${choices}
${totals.deals === 0 ? html`<p class="muted">Nothing: no deal has come, gone or changed its amount or class.</p>` : (await viewPage('parts/moved', view, {params}))?.body}`
}

const PER_PAGE = 50

/** `/behind/moved`: every deal that moved the figures; undefined for a moment without comparison. */
export async function viewMoved(view: View, readBetween: typeof readMovedBetween): Promise<Page | undefined> {
  const {query} = view
  const beyond = Math.max(0, Math.min(1_000_000, Number.parseInt(query.get('beyond') ?? '', 10) || 0))
  const which = {beyond, offset: (pageOf(query) - 1) * PER_PAGE, limit: PER_PAGE}
  const {since, totals, moved} = await readMoves(view, readBetween, which)
  if (!since || !totals || since.against !== query.get('against')) return undefined
  const list = await viewPage('behind/moved', view, {params: {moved: JSON.stringify(moved)}})
  if (!list) return undefined
  return {
    title: list.title,
    body: html`<p class="muted">Since ${since.words}.</p>
<p class="muted" id="total">${quantity(totals.deals, 'deal')}, ${PARTS.map((part) => `${part} ${signed(totals[part])}`).join(', ')}</p>
${list.body}
${renderPages(query, totals.deals, PER_PAGE)}`,
  }
}
