import type {NotIssued} from '../books/standing.ts'
import {
  type Moved,
  type Movements,
  NAMED,
  PARTS,
  readMovedBetween,
  readMovedSince,
  type Which,
} from '../build/movement.ts'
import {computedRow, rowOf} from '../build/release-row.ts'
import {addDays, isCalendarDate} from '../core/clock.ts'
import {centsOf, formatCents} from '../core/money.ts'
import {describeFindings} from './data-quality.ts'
import {
  addressLine,
  type Column,
  countOf,
  dollars,
  dollarsAtAGlance,
  figures,
  instant,
  linked,
  ratio,
  renderPages,
  signed,
  table,
  words,
} from './figures.ts'
import {type Ask, addressBehind, addressOf, addressOfDeal, addressOfPart, hiddenFields} from './filter.ts'
import {type Html, html, prose} from './html.ts'
import {viewPage} from './pages.ts'
import {findSeenBefore} from './reader.ts'
import type {Overview, Page, View} from './view.ts'

/** What a person has to look at, the most urgent first. */
export async function renderNeeds(
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
      html`<a href="/quarantine">${countOf(quarantined, 'record')}</a> of the last walk could not be read`,
    typeof notIssued === 'string' &&
      html`<b class="warned">What is not issued is not known</b>: ${notIssued}`,
    ...(typeof notIssued === 'string' ? [] : notIssued).map(
      ({period, profile, entries, amount}) =>
        html`<a href="/books/${period}?for=${profile}">${countOf(entries, 'entry', 'entries')}</a> of ${dollars(amount)} of ${period} ${entries === 1 ? 'is' : 'are'} not issued to ${profile}`,
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

export const TITLES = {open: 'Open', funded: 'Funded', pipeline: 'Pipeline'}

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

const summaryRow = rowOf('mart.portfolio_summary', [
  'open_deals',
  'open_amount',
  'open_wa_ltv',
  'pipeline_deals',
  'pipeline_amount',
  'funded_deals',
  'funded_amount',
  'funded_wa_ltv',
])

/** The figures and what moved them; the largest movements are named. */
export async function readMorning(view: View, readBetween?: typeof readMovedBetween) {
  const summary = await view.tables.one(summaryRow, 'from mart.portfolio_summary')
  return {summary, ...(await readMoves(view, readBetween))}
}

/**
 * What moved the figures: since the day that the address asks for, or the release; by default since the day before or, where nothing is
 * known of that, since the release that readers saw before this one.
 */
async function readMoves(
  {tables, release, query, filter}: View,
  readBetween: typeof readMovedBetween = readMovedBetween,
  which: Which = {},
) {
  const {as_of: asOf} = release.manifest
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
  const {as_of: asOf, checks} = release.manifest
  const {summary, totals, since, ...moves} = await readMorning(view, readBetween)
  const figureOf = (part: (typeof PARTS)[number], deals: number, amount: string) => ({
    name: TITLES[part],
    value: dollarsAtAGlance(amount),
    note: html`${countOf(deals, 'deal')}, ${dollars(amount)}${totals && html`<br>${centsOf(totals[part]) === 0n ? 'unchanged' : signed(totals[part])} since ${since?.name}`}`,
    href: deals === 0 ? undefined : addressOfPart(filter, part),
  })
  const body = html`${figures([
    figureOf('open', summary.open_deals, summary.open_amount),
    figureOf('funded', summary.funded_deals, summary.funded_amount),
    figureOf('pipeline', summary.pipeline_deals, summary.pipeline_amount),
    {
      name: 'Weighted loan-to-value',
      value: ratio(summary.open_wa_ltv),
      note: `of what is open; funded ${ratio(summary.funded_wa_ltv)}`,
      href: summary.open_wa_ltv === null ? undefined : addressOf('/portfolio', filter),
    },
  ])}
${renderMoves({asOf, since, totals, ...moves}, view)}
<h2>What needs a person</h2>
${await renderNeeds(view, overview)}
<h2>How fresh it is</h2>
<ul class="facts">
<li>last walk of <b>${release.manifest.observed_until}</b></li>
<li>all known at <b>${instant(release.manifest.known_at)}</b></li>
<li><a href="${addressOf('/checks', filter)}">${countOf(checks.passed, 'check')} passed${checks.warned > 0 && `, ${checks.warned} warned`}</a></li>
${overview.next[0] && html`<li>next: <b>${overview.next[0].job.name}</b> at ${instant(overview.next[0].slot)}</li>`}
${overview.holder && html`<li>running: <b>${overview.holder.command}</b>, ${overview.holder.progress}</li>`}
</ul>`
  return {title: 'Morning', body}
}

interface Moves {
  asOf: string
  /** The moment of comparison; undefined if nothing is known of it. */
  since: Moment | undefined
  /** The release before. */
  earlier: Moment | undefined
  first: string | null
  moved: readonly Moved[]
  totals: Movements['totals'] | undefined
}

function renderMoves({asOf, since, earlier, first, moved, totals}: Moves, {filter}: View): Html {
  const monthEnd = addDays(`${asOf.slice(0, 7)}-01`, -1)
  const days = [addDays(asOf, -1), addDays(asOf, -7), monthEnd].filter(
    (day) => first !== null && day >= first,
  )
  const moments = [...[...new Set(days)].sort().toReversed().map(momentOf), ...(earlier ? [earlier] : [])]
  const isDay = since !== undefined && isCalendarDate(since.against)
  const choices = html`<p class="choices">Against ${moments.map(({against, words}) =>
    linked(
      html`<span${against === since?.against && html` aria-current="true"`}>${words}</span> `,
      addressOf('/', filter, {against: [against]}),
    ),
  )}</p>${first !== null && first < asOf && html`<form class="against" action="/">${hiddenFields(filter)}<label>or <input type="date" name="against" value="${isDay && since.against}" max="${addDays(asOf, -1)}" min="${first}"></label> <button>Compare</button></form>`}`
  if (totals === undefined)
    return html`<h2>What moved it</h2>${moments.length > 0 && choices}<p class="muted">There is no earlier day or release to compare ${asOf} with.</p>`
  const rest = totals.deals - moved.length
  const restOf = (part: (typeof PARTS)[number]) =>
    formatCents(centsOf(totals[part]) - moved.reduce((sum, deal) => sum + centsOf(deal[part]), 0n))
  const others: Moved = {
    ...NOBODY,
    open: restOf('open'),
    funded: restOf('funded'),
    pipeline: restOf('pipeline'),
  }
  const total: Moved = {...NOBODY, ...totals}
  const behind = (changes: Partial<Record<Ask, string>>) =>
    addressBehind('moved', filter, {against: since?.against ?? '', ...changes})
  const columns = listColumns((deal) =>
    deal === total
      ? linked('All', behind({}))
      : deal === others
        ? linked(countOf(rest, 'other'), behind({beyond: String(NAMED)}))
        : linked(html`<code>${deal.deal_id}</code>`, addressOfDeal(deal.deal_id)),
  )
  return html`<h2>What moved it since ${since?.words}</h2>
${choices}
${totals.deals === 0 ? html`<p class="muted">Nothing: no deal has come, gone or changed its amount or class.</p>` : table(columns, rest > 0 ? [...moved, others] : moved, total)}`
}

/** Empty values of a deal's own columns in a row of totals. */
const NOBODY = {
  deal_id: '',
  status_before: null,
  status_after: null,
  amount_before: null,
  amount_after: null,
  is_corrected: false,
}

const listColumns = (nameOf: (deal: Moved) => Html): Column<Moved>[] => [
  {title: 'Deal', cell: nameOf},
  ...PARTS.map(
    (part): Column<Moved> => ({title: TITLES[part], kind: 'number', cell: (deal) => signed(deal[part])}),
  ),
  {title: 'What happened', cell: describeMove},
]

const PER_PAGE = 50

const placeRow = rowOf('core.deal_history', ['deal_id', 'property_address'])

/** `/behind/moved`: every deal that moved the figures; undefined for a moment without comparison. */
export async function viewMoved(view: View, readBetween: typeof readMovedBetween): Promise<Page | undefined> {
  const {tables, filter, query} = view
  const numberOf = (name: Ask | 'page', least: number) =>
    Math.max(least, Math.min(1_000_000, Number.parseInt(query.get(name) ?? '', 10) || least))
  const [beyond, page] = [numberOf('beyond', 0), numberOf('page', 1)]
  const which = {beyond, offset: (page - 1) * PER_PAGE, limit: PER_PAGE}
  const {since, totals, moved} = await readMoves(view, readBetween, which)
  if (!since || !totals || since.against !== query.get('against')) return undefined
  const places = await tables.all(
    placeRow,
    'select deal_id, property_address from core.deal_history where valid_to is null and list_contains($1::json::varchar[], deal_id)',
    [JSON.stringify(moved.map(({deal_id}) => deal_id))],
  )
  const placeOf = new Map(places.map(({deal_id, property_address}) => [deal_id, property_address]))
  const all: Moved = {...NOBODY, ...totals}
  const columns: Column<Moved>[] = [
    ...listColumns((deal) =>
      deal === all ? html`All` : linked(html`<code>${deal.deal_id}</code>`, addressOfDeal(deal.deal_id)),
    ),
    {title: 'Property', cell: (deal) => (deal === all ? '' : addressLine(placeOf.get(deal.deal_id)))},
  ]
  const pages = Math.max(1, Math.ceil(totals.deals / PER_PAGE))
  const asked = {against: since.against, beyond: String(beyond)}
  const sums = PARTS.map((part) => `${part} ${signed(totals[part])}`).join(', ')
  return {
    title: 'What moved it',
    body: html`<p class="muted">Since ${since.words}.</p>
<p class="muted" id="total">${countOf(totals.deals, 'deal')}, ${sums}</p>
${moved.length === 0 ? html`<p class="empty">There are none.</p>` : table(columns, moved, pages === 1 ? all : undefined)}
${renderPages(page, pages, (other) => addressBehind('moved', filter, {...asked, page: String(other)}))}`,
  }
}

/** What happened to a deal between two moments, in words. */
export function describeMove({
  status_before,
  status_after,
  amount_before,
  amount_after,
  is_corrected,
}: Omit<Moved, 'deal_id' | (typeof PARTS)[number]>): string {
  if (status_before === null && status_after === null) return ''
  const parts =
    status_before === null
      ? ['came', words(status_after)]
      : status_after === null
        ? ['is gone', `was ${words(status_before)}`]
        : [
            status_before !== status_after && `${words(status_before)} → ${words(status_after)}`,
            amount_before !== amount_after && `${dollars(amount_before)} → ${dollars(amount_after)}`,
          ]
  return [...parts, is_corrected && 'corrected later'].filter(Boolean).join(', ')
}
