import {type Column, countOf, dollars, linked, ratio, renderPages, table, words} from '../page/figures.ts'
import {type Html, html} from '../page/html.ts'
import {computedRow, type RowOf, rowOf} from '../release-row.ts'
import {addressOf, hiddenFields} from './filter.ts'
import {addressOfDeal} from './portfolio.ts'
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

/** `/deals`: the deals that were filtered and searched, in any order, page by page. */
export async function viewDeals({tables, filter, query}: View): Promise<Page> {
  const search = (query.get('q') ?? '').trim()
  const sort = readSort(query.get('sort'))
  const page = Math.max(1, Math.min(1_000_000, Number.parseInt(query.get('page') ?? '1', 10) || 1))
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
    {title: sorted('Property', 'property_address'), cell: ({property_address}) => property_address ?? '–'},
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
