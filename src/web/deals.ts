import {computedRow, type RowOf, rowOf} from '../build/release-row.ts'
import {shorten} from '../core/text.ts'
import {
  addressLine,
  type Column,
  countOf,
  dollars,
  instant,
  linked,
  pageOf,
  ratio,
  renderPages,
  table,
  words,
} from './figures.ts'
import {addressOf, addressOfDeal, hiddenFields} from './filter.ts'
import {type History, noneIfUnknown} from './history.ts'
import {type Html, html} from './html.ts'
import type {Page, View} from './view.ts'

const PER_PAGE = 50

const SHOWN = [
  'deal_id',
  'property_address',
  'loan_program',
  'status',
  'status_since',
  'loan_amount',
  'ltv',
] as const
const dealRow = rowOf('core.deal', SHOWN)
type Deal = RowOf<typeof dealRow>

/** `/deals`: the filtered or found deals, in the chosen order, page by page. */
export async function viewDeals({tables, filter, query}: View): Promise<Page> {
  const search = (query.get('q') ?? '').trim()
  const sort = readSort(query.get('sort'))
  const page = pageOf(query)
  const where = `where contains(lower(deal_id), lower($1)) or contains(lower(property_address), lower($1))`
  const total = await tables.one(
    computedRow({deals: 'count', amount: 'sum'}),
    `select count(*) as deals, sum(loan_amount) as amount from core.deal ${where}`,
    [search],
  )
  const deals = await tables.all(
    dealRow,
    `select ${SHOWN.join(', ')}
     from core.deal ${where}
     order by ${sort.column} ${sort.isDescending ? 'desc' : 'asc'} nulls last, deal_id
     limit ${PER_PAGE} offset ${(page - 1) * PER_PAGE}`,
    [search],
  )
  const here = {q: search === '' ? [] : [search], sort: [sort.text]}
  const address = (changes: Record<string, string[]>) => addressOf('/deals', filter, {...here, ...changes})
  const sorted = (title: string, column: string): Html => {
    const isSorted = sort.column === column
    const next = isSorted && !sort.isDescending ? `-${column}` : column
    const arrow = isSorted ? (sort.isDescending ? ' ↓' : ' ↑') : ''
    return html`<a href="${address({sort: [next]})}">${title}${arrow}</a>`
  }
  const columns: Column<Deal>[] = [
    {
      title: sorted('Deal', 'deal_id'),
      cell: ({deal_id}) => linked(html`<code>${deal_id}</code>`, addressOfDeal(deal_id)),
    },
    {title: sorted('Amount', 'loan_amount'), kind: 'number', cell: ({loan_amount}) => dollars(loan_amount)},
    {title: sorted('LTV', 'ltv'), kind: 'number', cell: ({ltv}) => ratio(ltv)},
    {
      title: sorted('Property', 'property_address'),
      cell: ({property_address}) => addressLine(property_address),
    },
    {title: sorted('Program', 'loan_program'), cell: ({loan_program}) => words(loan_program)},
    {title: sorted('Status', 'status'), cell: ({status}) => words(status)},
    {
      title: sorted('Since', 'status_since'),
      cell: ({status_since}) => html`<span class="day">${status_since}</span>`,
    },
  ]
  const pages = Math.max(1, Math.ceil(total.deals / PER_PAGE))
  const body = html`<form class="search" action="/deals" role="search">
${hiddenFields(filter)}
<input type="search" name="q" value="${search}" placeholder="Id or address" aria-label="Search deals by id or address">
<button>Search</button>
</form>
<p class="muted" id="total">${countOf(total.deals, 'deal')}, ${dollars(total.amount)}</p>
${deals.length === 0 ? html`<p class="empty">No deal is like that.</p>` : table(columns, deals)}
${renderPages(page, pages, (other) => address({page: [String(other)]}))}`
  return {title: 'Deals', body}
}

function readSort(text: string | null): {column: string; isDescending: boolean; text: string} {
  const asked = text ?? '-loan_amount'
  const isDescending = asked.startsWith('-')
  const column = asked.replace(/^-/, '')
  return SHOWN.some((one) => one === column)
    ? {column, isDescending, text: asked}
    : {column: 'loan_amount', isDescending: true, text: '-loan_amount'}
}

/** `/deals/<id>/received`: every version of a deal with the record that told it. */
export async function viewReceived(
  {tables}: View,
  dealId: string,
  history: History,
): Promise<Page | undefined> {
  const traces = await history.ask('trace', dealId).catch(noneIfUnknown)
  if (!traces) return undefined
  const latest = await tables.first(
    rowOf('core.deal_history', ['property_address']),
    'select property_address from core.deal_history where deal_id = $1 order by version desc limit 1',
    [dealId],
  )
  const body = html`<p class="muted">Every version of <a href="${addressOfDeal(dealId)}">${dealId}</a> in the history, oldest first, with the record that told it, byte for byte as the source sent it.</p>
${traces.map(
  ({
    business_date,
    kind,
    source,
    observed_at,
    request,
    tape,
    line,
    sha256,
    record,
    list_row,
  }) => html`<section class="entry">
<h2>${business_date} · ${kind}</h2>
<ul class="facts"><li>told by <b>${source}</b></li><li>asked at <b>${instant(observed_at)}</b></li>
${request !== null && html`<li><code>GET ${request}</code></li>`}
${tape === null ? html`<li>its tape is not kept</li>` : html`<li><code>${tape}</code>, line ${line}</li>`}
${sha256 !== null && html`<li>sha256 <code>${sha256.slice(0, 16)}…</code></li>`}</ul>
${record !== null && html`<pre class="received" tabindex="0">${record}</pre>`}
${list_row !== null && html`<p class="muted">What its own page left out stands in its list row:</p><pre class="received" tabindex="0">${list_row}</pre>`}
</section>`,
)}`
  return {title: `${shorten(latest?.property_address?.trim() || dealId)}: as received`, body}
}
