import {rowOf} from '../build/release-row.ts'
import {shorten} from '../core/text.ts'
import {instant} from './figures.ts'
import {addressOfDeal, hiddenFields} from './filter.ts'
import {noneIfUnknown} from './history.ts'
import {html} from './html.ts'
import {viewPage} from './pages.ts'
import {queriesOf} from './reader.ts'
import type {AskingView, Page, View} from './view.ts'

/** `/deals`: the filtered or found deals, in the chosen order, page by page. */
export async function viewDeals(view: View): Promise<Page | undefined> {
  const list = await viewPage('parts/deals', view)
  const search = (view.query.get('q') ?? '').trim()
  const form = html`<form class="search" action="/deals" role="search">
${hiddenFields(view.filter)}
<input type="search" name="q" value="${search}" placeholder="Id or address" aria-label="Search deals by id or address">
<button>Search</button>
</form>`
  return list && {...list, body: html`${form}\n${list.body}`}
}

/** `/deals/<id>/received`: every version of a deal with the record that told it. */
export async function viewReceived({ask, history}: AskingView, dealId: string): Promise<Page | undefined> {
  const traces = await history.ask('trace', dealId).catch(noneIfUnknown)
  if (!traces) return undefined
  const latest = await queriesOf(ask).first(
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
