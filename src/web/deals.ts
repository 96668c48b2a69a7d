import {anyRow, type Cell, computedRow, type RowOf, rowOf} from '../build/release-row.ts'
import {shorten} from '../core/text.ts'
import {
  addressLine,
  type Column,
  capitalised,
  countOf,
  dollars,
  instant,
  linked,
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

type Cells = RowOf<typeof anyRow>

const FIELDS = ['status', 'loan_amount', 'property_value', 'loan_program', 'property_address'] as const
const versionRow = rowOf('core.deal_history', ['change', 'valid_from', 'business_date', ...FIELDS])
type Version = RowOf<typeof versionRow>

/** `/deals/<id>`: a deal and its history; undefined for an unknown id. */
export async function viewDeal({tables, release}: View, dealId: string): Promise<Page | undefined> {
  const versions = await tables.all(
    versionRow,
    'from core.deal_history where deal_id = $1 order by version desc',
    [dealId],
  )
  const [latest] = versions
  if (!latest) return undefined
  const deal = await tables.first(anyRow, 'from core.deal where deal_id = $1', [dealId])
  const readOthers = async (name: string, order: string) =>
    release.manifest.tables.some((entry) => entry.name === name)
      ? await tables.all(anyRow, `from ${name} where deal_id = $1 order by ${order}`, [dealId])
      : []
  const documents = await readOthers('core.document', 'document_id')
  const borrowers = await readOthers('core.borrower', 'is_primary desc, borrower_id')
  const lines = await readOthers('accounting.journal_line', 'entry_date, entry_id, line_no')
  const body = html`<p class="lead"><code>${dealId}</code></p>
${latest.change === 'vanished' && html`<p class="notice">The source does not list it any more: it vanished on ${latest.business_date}. Below is what was last known of it.</p>`}
${deal?.is_missing === true && html`<p class="notice">The last walk did not show it. It counts until its absence is confirmed.</p>`}
${deal && renderFacts(deal)}
<h2>What happened</h2>
<p class="muted small">Newest first. <a href="${addressOfDeal(dealId)}/received">The records as they were received</a> are behind each.</p>
${table(
  VERSION_COLUMNS,
  versions.map((version, index) => ({version, before: versions[index + 1]})),
)}
${renderOthers('Documents', documents, ['document_id', 'category', 'uploaded_at', 'first_seen_at', 'is_missing'])}
${renderOthers('Borrowers', borrowers, ['borrower_id', 'person', 'is_primary', 'linked_at', 'is_missing'])}
${renderOthers('Journal', lines, ['entry_date', 'debit', 'credit', 'event', 'account_code', 'account_name', 'entry_id', 'memo'])}`
  return {title: headingOf(latest.property_address, dealId), body}
}

/** The heading of a deal: its address, else its id. */
const headingOf = (address: string | null | undefined, dealId: string) => shorten(address?.trim() || dealId)

/** Columns that the page shows elsewhere. */
const ELSEWHERE = new Set([
  ...['deal_id', 'property_address', 'is_missing'],
  ...['status_since_is_exact', 'status_since_at_earliest', 'status_since_at_latest'],
  ...['funded_on_is_exact', 'funded_after', 'funded_before'],
])

function renderFacts(deal: Cells): Html {
  const between = (first: Cell | undefined, last: Cell | undefined) =>
    typeof first === 'string' && first !== last ? `from ${first} to ${last}` : `by ${last}`
  const shown = (name: string, value: Cell | undefined) => {
    if (name === 'funded_on' && deal.funded_on_is_exact === false)
      return typeof deal.funded_after === 'string'
        ? `after ${deal.funded_after}, by ${deal.funded_before}`
        : `by ${deal.funded_before}`
    if (value === null || value === undefined) return '–'
    if (typeof value === 'boolean') return value ? 'yes' : 'no'
    if (name === 'loan_amount' || name === 'property_value') return dollars(String(value))
    if (name === 'ltv') return ratio(Number(value))
    if (name === 'status_since')
      return deal.status_since_is_exact === false
        ? between(deal.status_since_at_earliest, deal.status_since_at_latest)
        : String(value)
    if (['status', 'status_class', 'loan_program'].includes(name)) return words(String(value))
    return name.endsWith('_at') ? instant(String(value)) : String(value)
  }
  return html`<dl class="deal">${Object.entries(deal)
    .filter(([name]) => !ELSEWHERE.has(name))
    .map(
      ([name, value]) =>
        html`<div><dt>${name === 'ltv' ? 'loan-to-value' : words(name)}</dt><dd><bdi>${shown(name, value)}</bdi></dd></div>`,
    )}</dl>`
}

interface Step {
  version: Version
  before: Version | undefined
}

const VERSION_COLUMNS: Column<Step>[] = [
  {title: 'Day', cell: ({version}) => html`<span class="day">${version.business_date}</span>`},
  {title: 'What', cell: ({version}) => html`<b>${version.change}</b>`},
  {title: 'Before → after', cell: ({version, before}) => renderChanges(version, before)},
  {
    title: 'Asked at',
    cell: ({version}) => html`<span class="day">${instant(version.valid_from)}</span>`,
  },
]

function renderChanges(version: Version, before: Version | undefined): Html {
  const shown = (name: (typeof FIELDS)[number], value: string | null) =>
    name === 'loan_amount' || name === 'property_value'
      ? dollars(value)
      : name === 'property_address'
        ? (value ?? '–')
        : words(value)
  const changed = FIELDS.filter((name) => before === undefined || version[name] !== before[name])
  return html`${changed.map(
    (name) =>
      html`<div><span class="muted">${words(name)}</span> ${before && html`<s>${shown(name, before[name])}</s> → `}<bdi>${shown(name, version[name])}</bdi></div>`,
  )}`
}

function renderOthers(title: string, rows: readonly Cells[], names: readonly string[]): Html | false {
  if (rows.length === 0) return false
  const columns = names.map(
    (name): Column<Cells> => ({
      title: capitalised(words(name)),
      kind: name === 'debit' || name === 'credit' ? 'number' : undefined,
      cell: (row) => {
        const value = row[name]
        if (value === null || value === undefined) return ''
        if (name === 'debit' || name === 'credit') return dollars(String(value))
        if (name.endsWith('_at')) return instant(String(value))
        if (name.endsWith('_date')) return html`<span class="day">${String(value)}</span>`
        if (name === 'event' || name === 'category') return words(String(value))
        return typeof value === 'boolean' ? (value ? 'yes' : 'no') : String(value)
      },
    }),
  )
  return html`<h2>${title}</h2>${table(columns, rows)}`
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
  return {title: `${headingOf(latest?.property_address, dealId)}: as received`, body}
}
