import {z} from 'zod'
import {addDays, isCalendarDate} from '../clock.ts'
import {centsOf, formatCents} from '../money.ts'
import {summaryRow} from '../page/breakdown.ts'
import {
  type Column,
  count,
  dollars,
  dollarsAtAGlance,
  figures,
  instant,
  linked,
  ratio,
  signed,
  table,
  words,
} from '../page/figures.ts'
import {type Html, html} from '../page/html.ts'
import {addressOf, hiddenFields} from './filter.ts'
import {type NotIssued, renderNeeds} from './needs.ts'
import type {Overview} from './overview.ts'
import {addressOfDeal} from './portfolio.ts'
import type {Page, View} from './view.ts'

/** Deals that moved a total and are named; the others are counted. */
const NAMED = 12

export const PARTS = ['open', 'funded', 'pipeline'] as const
export const TITLES = {open: 'Open', funded: 'Funded', pipeline: 'Pipeline'}

/** A deal as it stood at the ends of two days; what it adds to a part is its amount, where its status is of it. */
const MOVED = `
with side as (
  select
    position.deal_id,
    position.status,
    position.loan_amount,
    coalesce(status.class, 'unclassified') as class,
    position.from_day <= $1 and coalesce(position.to_day > $1, true) as is_before,
    position.to_day is null as is_after
  from work.position_span as position
  left join seed.status as status on status.status = position.status
  where (position.from_day <= $1 and coalesce(position.to_day > $1, true)) or position.to_day is null
),
moved as (
  select
    deal_id,
    any_value(status) filter (where is_before) as status_before,
    any_value(status) filter (where is_after) as status_after,
    any_value(loan_amount) filter (where is_before) as amount_before,
    any_value(loan_amount) filter (where is_after) as amount_after,
    coalesce(sum(case when is_after then loan_amount else 0 end) filter (where not starts_with(class, 'ended')), 0)
    - coalesce(sum(case when is_before then loan_amount else 0 end) filter (where not starts_with(class, 'ended')), 0) as open,
    coalesce(sum(case when is_after then loan_amount else 0 end) filter (where class = 'funded'), 0)
    - coalesce(sum(case when is_before then loan_amount else 0 end) filter (where class = 'funded'), 0) as funded,
    coalesce(sum(case when is_after then loan_amount else 0 end) filter (where class = 'pipeline'), 0)
    - coalesce(sum(case when is_before then loan_amount else 0 end) filter (where class = 'pipeline'), 0) as pipeline
  from side
  group by deal_id
)`

const movedRow = z.object({
  deal_id: z.string(),
  status_before: z.string().nullable(),
  status_after: z.string().nullable(),
  amount_before: z.string().nullable(),
  amount_after: z.string().nullable(),
  open: z.string(),
  funded: z.string(),
  pipeline: z.string(),
})
type Moved = z.output<typeof movedRow>

const totalsRow = z.object({
  deals: z.coerce.number(),
  open: z.string(),
  funded: z.string(),
  pipeline: z.string(),
})

/** What goes on while the page is asked for. */
type Now = Pick<Overview, 'alarms' | 'lastSync' | 'next' | 'holder'> & {
  notIssued: readonly NotIssued[] | string
}

/** What there is, and what moved it since another day, the one before by default; of which the largest movements are named. */
export async function readMorning({tables, release, query}: View) {
  const {as_of: asOf} = release.manifest
  const summary = await tables.one(summaryRow, 'from mart.portfolio_summary')
  const {first} = await tables.one(
    z.object({first: z.string().nullable()}),
    'select min(day) as first from mart.position_daily',
  )
  const wished = query.get('against') ?? ''
  const asked = isCalendarDate(wished) ? wished : addDays(asOf, -1)
  if (first === null || asked < first || asked >= asOf) return {summary, first, moved: []}
  const totals = await tables.one(
    totalsRow,
    `${MOVED}
     select count(*) filter (where open <> 0 or funded <> 0 or pipeline <> 0) as deals,
       ${PARTS.map((part) => `cast(coalesce(sum(${part}), 0) as decimal(38, 2)) as ${part}`).join(', ')} from moved`,
    [asked],
  )
  const moved = await tables.all(
    movedRow,
    `${MOVED}
     select * from moved where open <> 0 or funded <> 0 or pipeline <> 0
     order by greatest(abs(open), abs(funded), abs(pipeline)) desc, deal_id limit ${NAMED}`,
    [asked],
  )
  return {summary, first, against: asked, totals, moved}
}

/** `/`: what there is, what moved it since another day, and what needs a person. */
export async function viewMorning(view: View, overview: Now): Promise<Page> {
  const {release, filter} = view
  const {as_of: asOf, checks} = release.manifest
  const {summary, first, against, totals, moved} = await readMorning(view)
  const figureOf = (part: (typeof PARTS)[number], deals: number, amount: string) => ({
    name: TITLES[part],
    value: dollarsAtAGlance(amount),
    note: html`${count(deals)} deals, ${dollars(amount)}${totals && html`<br>${signed(totals[part])} since ${against}`}`,
    href: addressOf('/deals', filter, {part: [part]}),
  })
  const body = html`${figures([
    figureOf('open', summary.open_deals, summary.open_amount),
    figureOf('funded', summary.funded_deals, summary.funded_amount),
    figureOf('pipeline', summary.pipeline_deals, summary.pipeline_amount),
    {
      name: 'Weighted loan-to-value',
      value: ratio(summary.open_wa_ltv),
      note: `of what is open; funded ${ratio(summary.funded_wa_ltv)}`,
      href: addressOf('/portfolio', filter),
    },
  ])}
${renderMoves({asOf, against, first, moved, totals}, view)}
<h2>What needs a person</h2>
${await renderNeeds(view, overview)}
<h2>How fresh it is</h2>
<ul class="facts">
<li>last walk of <b>${release.manifest.observed_until}</b></li>
<li>all known at <b>${instant(release.manifest.known_at)}</b></li>
<li><a href="/tables">${checks.passed} checks passed${checks.warned > 0 && `, ${checks.warned} warned`}</a></li>
${overview.next[0] && html`<li>next: <b>${overview.next[0].job.name}</b> at ${instant(overview.next[0].slot)}</li>`}
${overview.holder && html`<li>running: <b>${overview.holder.command}</b>, ${overview.holder.progress}</li>`}
</ul>`
  return {title: 'Morning', body}
}

interface Moves {
  asOf: string
  /** The day it is compared with; undefined where nothing is known of it. */
  against: string | undefined
  first: string | null
  moved: readonly Moved[]
  totals: z.output<typeof totalsRow> | undefined
}

function renderMoves({asOf, against, first, moved, totals}: Moves, {filter}: View): Html {
  const monthEnd = addDays(`${asOf.slice(0, 7)}-01`, -1)
  const days = [addDays(asOf, -1), addDays(asOf, -7), monthEnd].filter(
    (day) => first !== null && day >= first,
  )
  const choices = html`<p class="choices">Against ${[...new Set(days)]
    .sort()
    .toReversed()
    .map((day) =>
      linked(
        html`<span${day === against && html` aria-current="true"`}>${day}</span> `,
        addressOf('/', filter, {against: [day]}),
      ),
    )}</p><form class="against" action="/">${hiddenFields(filter)}<label>or <input type="date" name="against" value="${against}" max="${addDays(asOf, -1)}"${first !== null && html` min="${first}"`}></label> <button>Compare</button></form>`
  if (totals === undefined)
    return html`<h2>What moved it</h2><p class="muted">There is no earlier day to compare ${asOf} with.</p>`
  const rest = totals.deals - moved.length
  const restOf = (part: (typeof PARTS)[number]) =>
    formatCents(centsOf(totals[part]) - moved.reduce((sum, deal) => sum + centsOf(deal[part]), 0n))
  const others: Moved = {
    deal_id: '',
    status_before: null,
    status_after: null,
    amount_before: null,
    amount_after: null,
    open: restOf('open'),
    funded: restOf('funded'),
    pipeline: restOf('pipeline'),
  }
  const total: Moved = {...others, deal_id: 'all', ...totals}
  const columns: Column<Moved>[] = [
    {
      title: 'Deal',
      cell: ({deal_id}) =>
        deal_id === 'all'
          ? 'All'
          : deal_id === ''
            ? `${count(rest)} others`
            : linked(html`<code>${deal_id}</code>`, addressOfDeal(deal_id)),
    },
    {title: 'What happened', cell: describeMove},
    ...PARTS.map(
      (part): Column<Moved> => ({title: TITLES[part], kind: 'number', cell: (deal) => signed(deal[part])}),
    ),
  ]
  return html`<h2>What moved it since ${against}</h2>
${choices}
${totals.deals === 0 ? html`<p class="muted">Nothing: no deal has come, gone or changed its amount or class.</p>` : table(columns, rest > 0 ? [...moved, others] : moved, total)}`
}

/** What happened to a deal between two moments at which it stood, or did not. */
export function describeMove({
  status_before,
  status_after,
  amount_before,
  amount_after,
}: Pick<Moved, 'status_before' | 'status_after' | 'amount_before' | 'amount_after'>): string {
  if (status_before === null && status_after === null) return ''
  if (status_before === null) return `came, ${words(status_after)}`
  if (status_after === null) return `is gone, was ${words(status_before)}`
  const parts = [
    status_before === status_after ? '' : `${words(status_before)} → ${words(status_after)}`,
    amount_before === amount_after ? '' : `${dollars(amount_before)} → ${dollars(amount_after)}`,
  ]
  return parts.filter(Boolean).join(', ')
}
