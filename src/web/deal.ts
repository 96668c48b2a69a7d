import {z} from 'zod'
import {type Column, dollars, instant, ratio, table, words} from '../page/figures.ts'
import {type Html, html} from '../page/html.ts'
import {addressOfDeal} from './portfolio.ts'
import type {Page, View} from './view.ts'

const text = z.string().nullable()
const cells = z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()]))
type Cells = z.output<typeof cells>

const versionRow = z.object({
  version: z.coerce.number(),
  change: z.string(),
  valid_from: z.string(),
  business_date: z.string(),
  property_address: z.string(),
  loan_amount: z.string(),
  property_value: text,
  loan_program: text,
  status: z.string(),
})
type Version = z.output<typeof versionRow>

/** `/deals/<id>`: what is known of a deal and how it became so; undefined where the release knows none of this id. */
export async function viewDeal({tables, release}: View, dealId: string): Promise<Page | undefined> {
  const versions = await tables.all(
    versionRow,
    'from core.deal_history where deal_id = $1 order by version desc',
    [dealId],
  )
  const [latest] = versions
  if (!latest) return undefined
  const deal = await tables.first(cells, 'from core.deal where deal_id = $1', [dealId])
  const readOthers = async (name: string, order: string) =>
    release.manifest.tables.some((entry) => entry.name === name)
      ? await tables.all(cells, `from ${name} where deal_id = $1 order by ${order}`, [dealId])
      : []
  const documents = await readOthers('core.document', 'document_id')
  const borrowers = await readOthers('core.borrower', 'is_primary desc, borrower_id')
  const lines = await readOthers('accounting.journal_line', 'entry_date, entry_id, line_no')
  const body = html`<p class="lead">${latest.property_address}</p>
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
${renderOthers('Journal', lines, ['entry_date', 'entry_id', 'event', 'account_code', 'account_name', 'debit', 'credit', 'memo'])}`
  return {title: dealId, body}
}

function renderFacts(deal: Cells): Html {
  const shown = (name: string, value: Cells[string] | undefined) => {
    if (value === null || value === undefined) return '–'
    if (typeof value === 'boolean') return value ? 'yes' : 'no'
    if (name === 'loan_amount' || name === 'property_value') return dollars(String(value))
    if (name === 'ltv') return ratio(Number(value))
    return name.endsWith('_at') ? instant(`${String(value).replace(' ', 'T')}Z`) : String(value)
  }
  return html`<dl class="deal">${Object.entries(deal)
    .filter(([name]) => name !== 'deal_id' && name !== 'property_address')
    .map(([name, value]) => html`<div><dt>${words(name)}</dt><dd>${shown(name, value)}</dd></div>`)}</dl>`
}

interface Step {
  version: Version
  before: Version | undefined
}

const FIELDS = ['status', 'loan_amount', 'property_value', 'loan_program', 'property_address'] as const

const VERSION_COLUMNS: Column<Step>[] = [
  {title: 'Day', cell: ({version}) => html`<span class="day">${version.business_date}</span>`},
  {title: 'What', cell: ({version}) => html`<b>${version.change}</b>`},
  {title: 'Before → after', cell: ({version, before}) => renderChanges(version, before)},
  {
    title: 'Asked at',
    cell: ({version}) =>
      html`<span class="day">${instant(`${version.valid_from.replace(' ', 'T')}Z`)}</span>`,
  },
]

function renderChanges(version: Version, before: Version | undefined): Html {
  const shown = (name: (typeof FIELDS)[number], value: string | null) =>
    name === 'loan_amount' || name === 'property_value' ? dollars(value) : words(value)
  const changed = FIELDS.filter((name) => before === undefined || version[name] !== before[name])
  return html`${changed.map(
    (name) =>
      html`<div><span class="muted">${words(name)}</span> ${before && html`<s>${shown(name, before[name])}</s> → `}${shown(name, version[name])}</div>`,
  )}`
}

function renderOthers(title: string, rows: readonly Cells[], names: readonly string[]): Html | false {
  if (rows.length === 0) return false
  const columns = names.map(
    (name): Column<Cells> => ({
      title: words(name),
      kind: name === 'debit' || name === 'credit' ? 'number' : undefined,
      cell: (row) => {
        const value = row[name]
        if (value === null || value === undefined) return ''
        if (name === 'debit' || name === 'credit') return dollars(String(value))
        return typeof value === 'boolean' ? (value ? 'yes' : 'no') : String(value)
      },
    }),
  )
  return html`<h2>${title}</h2>${table(columns, rows)}`
}

/** What `loantape trace <deal> --json` says. */
export const traceList = z.object({
  versions: z.array(
    z.object({
      business_date: z.string(),
      kind: z.string(),
      source: z.string(),
      observed_at: z.string(),
      tape: text,
      line: z.number().nullable(),
      request: text,
      sha256: text,
      record: z.unknown(),
    }),
  ),
})

/** `/deals/<id>/received`: every version of a deal with the record it was made of. */
export function renderReceived(dealId: string, traces: z.output<typeof traceList>['versions']): Page {
  const body = html`<p class="muted">Every version of <a href="${addressOfDeal(dealId)}">${dealId}</a> in the history, oldest first, with the record as the source sent it.</p>
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
  }) => html`<section class="entry">
<h3>${business_date} · ${kind}</h3>
<ul class="facts"><li>told by <b>${source}</b></li><li>asked at <b>${instant(observed_at)}</b></li>
${request !== null && html`<li><code>GET ${request}</code></li>`}
${tape === null ? html`<li>its tape is not kept</li>` : html`<li><code>${tape}</code>, line ${line}</li>`}
${sha256 !== null && html`<li>sha256 <code>${sha256.slice(0, 16)}…</code></li>`}</ul>
${record !== null && html`<pre tabindex="0">${JSON.stringify(record, null, 2)}</pre>`}
</section>`,
)}`
  return {title: `${dealId}: as received`, body}
}
