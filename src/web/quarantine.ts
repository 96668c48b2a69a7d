import {z} from 'zod'
import {type Column, count, instant, linked, table} from '../page/figures.ts'
import {type Html, html} from '../page/html.ts'
import {quoteLiteral} from '../warehouse/database.ts'
import {askFirst} from './actions.ts'
import type {CommandEnd} from './command.ts'
import {addressOfDeal} from './portfolio.ts'
import type {Page, View} from './view.ts'

/** What `loantape quarantine reasons --json` says. */
export const reasonList = z.object({
  reasons: z.array(
    z.object({
      path: z.string(),
      reason: z.string(),
      records: z.number(),
      times: z.number(),
      since: z.string(),
      until: z.string(),
    }),
  ),
  records: z.array(
    z.object({
      quarantine_id: z.string(),
      walk_id: z.string().nullable(),
      stream: z.string(),
      record_id: z.string().nullable(),
      path: z.string(),
      reason: z.string(),
      times: z.number(),
      since: z.string(),
      until: z.string(),
    }),
  ),
  per_page: z.number(),
  pruned: z.number(),
})
type ReasonList = z.output<typeof reasonList>
type Reason = ReasonList['reasons'][number]
type Waiting = ReasonList['records'][number]

/** Which records `/quarantine` is asked for. */
export function readAsked(query: URLSearchParams): {
  path: string | null
  reason: string | null
  page: number
} {
  const page = Math.max(1, Math.min(1_000_000, Number.parseInt(query.get('page') ?? '1', 10) || 1))
  return {path: query.get('path'), reason: query.get('reason'), page}
}

/** `/quarantine`: the records that could not be read, by reason, and page by page. */
export async function viewQuarantine(
  {tables, query}: View,
  {reasons, records, per_page, pruned}: ReasonList,
  mayAct: boolean,
): Promise<Page> {
  const asked = readAsked(query)
  const ids = records.map(({record_id}) => quoteLiteral(record_id ?? ''))
  const known = await tables.all(
    z.object({deal_id: z.string()}),
    `select distinct deal_id from core.deal_history where deal_id in (${ids.join(', ') || `''`})`,
  )
  const deals = new Set(known.map(({deal_id}) => deal_id))
  const isAsked = ({path, reason}: Reason) =>
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
<h2>${asked.reason === null ? 'Records' : html`Records: <code>${asked.path}</code>, ${asked.reason}`}</h2>
${asked.reason !== null && html`<p class="chips"><a href="/quarantine">all reasons</a></p>`}
${records.length === 0 ? html`<p class="empty">No record is like that.</p>` : table(columnsOf(deals), records)}
<nav class="pages" aria-label="Pages">
${asked.page > 1 && html`<a rel="prev" href="${address(asked.page - 1)}">← before</a>`}
<span class="muted">page ${count(asked.page)} of ${count(pages)}</span>
${asked.page < pages && html`<a rel="next" href="${address(asked.page + 1)}">next →</a>`}
</nav>`
}`
  return {title: 'Quarantine', body}
}

function addressOfReason({path, reason}: {path: string | null; reason: string | null}, page = 1): string {
  const query = new URLSearchParams({
    ...(path !== null && {path}),
    ...(reason !== null && {reason}),
    ...(page > 1 && {page: String(page)}),
  })
  return query.size === 0 ? '/quarantine' : `/quarantine?${query}`
}

const instantOf = (text: string) => html`<span class="day">${instant(`${text.replace(' ', 'T')}Z`)}</span>`

const REASON_COLUMNS: Column<Reason>[] = [
  {title: 'Field', cell: ({path}) => html`<code>${path}</code>`},
  {title: 'Reason', cell: (one) => linked(one.reason, addressOfReason(one))},
  {title: 'Records', kind: 'number', cell: ({records}) => count(records)},
  {title: 'Times', kind: 'number', cell: ({times}) => count(times)},
  {title: 'Since', cell: ({since}) => instantOf(since)},
  {title: 'Last', cell: ({until}) => instantOf(until)},
]

const columnsOf = (deals: ReadonlySet<string>): Column<Waiting>[] => [
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
  {title: 'Last walk', cell: ({walk_id}) => html`<span class="mono small">${walk_id ?? '–'}</span>`},
  {
    title: 'As received',
    cell: ({quarantine_id}) => html`<a href="/quarantine/${quarantine_id}">${quarantine_id}</a>`,
  },
]

/** `/quarantine/<id>`: one record whole, in the words of `loantape quarantine show`, numbers to the last digit. */
export function renderQuarantined(id: string, {exitCode, words}: CommandEnd): Page {
  const body: Html =
    exitCode === 0
      ? html`<p class="muted">As its source sent it. <a href="/quarantine">All that wait</a>.</p><pre tabindex="0">${words}</pre>`
      : html`<p class="notice">${words}</p>`
  return {title: `In quarantine: ${id}`, body}
}
