import type {WaitingReason, WaitingRecord} from '../load/quarantine.ts'
import {type Column, count, instant, linked, renderPages, table, words} from '../page/figures.ts'
import {html} from '../page/html.ts'
import {NOT_AT_HAND, type ReasonsRequest} from '../pipeline/quarantined-records.ts'
import {rowOf} from '../release-row.ts'
import {quoteLiteral} from '../warehouse/database.ts'
import {askFirst} from './actions.ts'
import {type History, noneIfUnknown} from './history.ts'
import {addressOfDeal} from './portfolio.ts'
import type {Page, View} from './view.ts'

/** Which records `/quarantine` is asked for. */
function readAsked(query: URLSearchParams): ReasonsRequest {
  const page = Math.max(1, Math.min(1_000_000, Number.parseInt(query.get('page') ?? '1', 10) || 1))
  const [path, reason] = [query.get('path'), query.get('reason')]
  return {page, ...(path !== null && {path}), ...(reason !== null && {reason})}
}

/** `/quarantine`: the records that could not be read, by reason, and page by page. */
export async function viewQuarantine(
  {tables, query}: View,
  history: History,
  mayAct: boolean,
): Promise<Page> {
  const asked = readAsked(query)
  const {reasons, records, per_page, pruned} = await history.ask('reasons', asked)
  const ids = records.map(({record_id}) => quoteLiteral(record_id ?? ''))
  const known = await tables.all(
    rowOf('core.deal_history', ['deal_id']),
    `select distinct deal_id from core.deal_history where deal_id in (${ids.join(', ') || `''`})`,
  )
  const deals = new Set(known.map(({deal_id}) => deal_id))
  const isAsked = ({path, reason}: WaitingReason) =>
    path === (asked.path ?? path) && reason === (asked.reason ?? reason)
  const shown = reasons.filter(isAsked).reduce((sum, one) => sum + one.records, 0)
  const pages = Math.max(1, Math.ceil(shown / per_page))
  const address = (page: number) => addressOfReason(asked, page)
  const replay = askFirst('Read them once more', {
    asked: {do: 'replay'},
    says: html`After a fix of schema or code: reads every record once more and stores those that can be read now, then builds a release (<code>loantape quarantine replay</code>).`,
    button: 'Replay the quarantine',
  })
  const body = html`<p class="lead">A record that cannot be read is kept whole on its tape; its deal counts as last known.</p>
${pruned > 0 && html`<p class="muted">${count(pruned)} more were never read, and what they held has been pruned.</p>`}
${
  reasons.length === 0
    ? html`<p class="passed">No record waits: all that came could be read.</p>`
    : html`${mayAct && replay}
<h2>Why</h2>
${table(REASON_COLUMNS, reasons)}
<h2>${asked.reason === undefined ? 'Records' : html`Records: <code>${asked.path}</code>, ${asked.reason}`}</h2>
${asked.reason !== undefined && html`<p class="chips"><a href="/quarantine">all reasons</a></p>`}
${records.length === 0 ? html`<p class="empty">No record is like that.</p>` : table(columnsOf(deals), records)}
${renderPages(asked.page, pages, address)}`
}`
  return {title: 'Quarantine', body}
}

function addressOfReason({path, reason}: Omit<ReasonsRequest, 'page'>, page = 1): string {
  const query = new URLSearchParams({
    ...(path !== undefined && {path}),
    ...(reason !== undefined && {reason}),
    ...(page > 1 && {page: String(page)}),
  })
  return query.size === 0 ? '/quarantine' : `/quarantine?${query}`
}

const instantOf = (text: string) => html`<span class="day">${instant(text)}</span>`

const REASON_COLUMNS: Column<WaitingReason>[] = [
  {title: 'Field', cell: ({path}) => html`<code>${path}</code>`},
  {title: 'Reason', cell: (one) => linked(one.reason, addressOfReason(one))},
  {title: 'Records', kind: 'number', cell: ({records}) => count(records)},
  {title: 'Times', kind: 'number', cell: ({times}) => count(times)},
  {title: 'Since', cell: ({since}) => instantOf(since)},
  {title: 'Last', cell: ({until}) => instantOf(until)},
]

const columnsOf = (deals: ReadonlySet<string>): Column<WaitingRecord>[] => [
  {
    title: 'Record',
    cell: ({stream, record_id}) =>
      record_id === null
        ? html`<span class="muted">${stream} without an id</span>`
        : html`${stream !== 'deal' && `${stream} `}${linked(html`<code>${record_id}</code>`, deals.has(record_id) ? addressOfDeal(record_id) : undefined)}`,
  },
  {title: 'Field', cell: ({path}) => html`<code>${path}</code>`},
  {title: 'Reason', cell: ({reason}) => reason},
  {title: 'Since', cell: ({since}) => instantOf(since)},
  {title: 'Times', kind: 'number', cell: ({times}) => count(times)},
  {title: 'Last walk', cell: ({walk_id}) => html`<span class="mono small">${walk_id}</span>`},
  {
    title: 'As received',
    cell: ({quarantine_id}) => html`<a href="/quarantine/${quarantine_id}">${quarantine_id}</a>`,
  },
]

/** `/quarantine/<id>`: one record whole, byte for byte as its source sent it. */
export async function viewQuarantined(id: string, history: History): Promise<Page | undefined> {
  const found = await history.ask('quarantined', id).catch(noneIfUnknown)
  if (!found) return undefined
  const {record, ...entry} = found
  const body = html`<p class="muted">As its source sent it. <a href="/quarantine">All that wait</a>.</p>
<dl class="deal">${Object.entries(entry).map(([name, value]) => html`<div><dt>${words(name)}</dt><dd>${value ?? '–'}</dd></div>`)}</dl>
${record === null ? html`<p class="notice">${NOT_AT_HAND}</p>` : html`<pre class="received" tabindex="0">${record}</pre>`}`
  return {title: `In quarantine: ${id}`, body}
}
