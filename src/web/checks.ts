import {rowOf} from '../build/release-row.ts'
import {quantity} from '../core/money.ts'
import {shorten} from '../core/text.ts'
import {type ReleaseCheck, readReleaseChecks} from '../store/release.ts'
import {NOT_AT_HAND, type ReasonsRequest} from '../sync/quarantine.ts'
import {askFirst} from './actions.ts'
import {formatValue, renderMeant, renderObjects} from './blocks.ts'
import {count, instant, linked, pageOf, renderPages, wordChecks, words} from './figures.ts'
import {addressOfDeal} from './filter.ts'
import {type Html, html, prose} from './html.ts'
import {viewPage} from './pages.ts'
import {noneIfUnknown, queriesOf} from './reader.ts'
import type {AskingView, Page, View} from './view.ts'

/** How many rows of a check are shown. */
const SAMPLES = 2

/** The anchor of a check on the page of checks. */
const placeOf = (name: string) => name.replaceAll(/[^\w.]+/g, '-')

/** `/checks`: every check of the release, those that found rows first, with the rows. */
export function viewChecks({release}: View): Page {
  const checks = readReleaseChecks(release.dir)
  return {
    title: 'Checks',
    body: html`<p class="lead">${wordChecks(release.manifest.checks)}. A check that fails lets nothing be released.</p>
${checks.filter(({failures}) => failures > 0).map(renderFound)}
<h2>Passed</h2>
<ul class="needs">${checks
      .filter(({failures}) => failures === 0)
      .map(
        ({name, description}) =>
          html`<li id="${placeOf(name)}"><b class="passed">passed</b> ${!name.includes('(') && html`${words(name)}: `}${prose(description)}</li>`,
      )}</ul>`,
  }
}

/** A check of a header is called by what it demands; one of a file has a name. */
const nameOf = (name: string): Html =>
  name.includes('(') ? html`<code>${name}</code>` : html`${words(name)}`

function renderFound({name, description, failures, rows}: ReleaseCheck): Html {
  const [subject, ...others] = Object.keys(rows[0] ?? {})
  const isAmount = (name: string) =>
    rows.every((row) => row[name] === null || /^-?\d+\.\d\d$/.test(String(row[name])))
  const columns = [
    ...(subject === undefined ? [] : [{name: subject, type: ''}]),
    ...others.filter(isAmount).map((name) => ({name, type: 'DECIMAL(38,2)'})),
    ...others.filter((name) => !isAmount(name)).map((name) => ({name, type: ''})),
  ]
  const shown = {columns, rows: rows.map((row) => columns.map(({name}) => row[name]))}
  return html`<h2 id="${placeOf(name)}">${nameOf(name)}</h2>
<p><b class="warned">warned</b> ${prose(description)}</p>
<p class="muted">Not so for ${quantity(failures, 'row')}${rows.length < failures && `; the first ${count(rows.length)}`}:</p>
${renderMeant(shown)}`
}

/** The warnings, each a sentence that links to its rows. @param but names of checks shown elsewhere */
export function describeFindings({release}: Pick<View, 'release'>, but: readonly string[] = []): Html[] {
  return readReleaseChecks(release.dir)
    .filter(({name, failures}) => failures > 0 && !but.includes(name))
    .map(({name, description, failures, rows}) => {
      const samples = rows.slice(0, SAMPLES).map(describeRow)
      return html`<b class="warned">${prose(description.split(/[;.](?: |$)/)[0] ?? '')}</b>: not so for <a href="/checks#${placeOf(name)}">${quantity(failures, 'row')}</a>, such as ${samples.map((sample, index) => html`${index > 0 && '; '}${sample}`)}`
    })
}

/** A row that a check found: its id and the other columns. */
function describeRow(row: ReleaseCheck['rows'][number]): Html {
  const [[id, subject] = ['', ''], ...others] = Object.entries(row)
  const said = others.map(([name, value]) => `${words(name)} ${formatValue({name, type: ''}, value)}`)
  const named =
    id === 'deal_id' ? linked(String(subject), addressOfDeal(String(subject))) : words(String(subject))
  return html`${named}${said.length > 0 && ` (${said.join(', ')})`}`
}

/** Which records `/quarantine` is asked for. */
function readAsked(query: URLSearchParams): ReasonsRequest {
  const [path, reason] = [query.get('path'), query.get('reason')]
  return {page: pageOf(query), ...(path !== null && {path}), ...(reason !== null && {reason})}
}

/** `/quarantine`: the records that could not be read, by reason, and page by page. */
export async function viewQuarantine(view: AskingView): Promise<Page> {
  const asked = readAsked(view.query)
  const {reasons, records, per_page, pruned} = await view.history.ask('reasons', asked)
  const list = await viewPage('parts/quarantine', view, {
    params: {reasons: JSON.stringify(reasons), records: JSON.stringify(records)},
  })
  const isAsked = ({path, reason}: (typeof reasons)[number]) =>
    path === (asked.path ?? path) && reason === (asked.reason ?? reason)
  const shown = reasons.filter(isAsked).reduce((sum, one) => sum + one.records, 0)
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
    : html`${view.mayAct && replay}
${asked.reason !== undefined && html`<p class="chips"><code>${asked.path}</code>, ${asked.reason}: <a href="/quarantine">all reasons</a></p>`}
${list?.body}
${renderPages(view.query, shown, per_page)}`
}`
  return {title: 'Quarantine', body}
}

/** `/quarantine/<id>`: one record whole, byte for byte as its source sent it. */
export async function viewQuarantined({history}: AskingView, id: string): Promise<Page | undefined> {
  const found = await history.ask('quarantined', id).catch(noneIfUnknown)
  if (!found) return undefined
  const {record, ...entry} = found
  const {observed_at} = entry
  const body = html`<p class="muted">As its source sent it. <a href="/quarantine">All that wait</a>.</p>
${renderObjects('facts', [{...entry, observed_at: instant(observed_at)}])}
${record === null ? html`<p class="notice">${NOT_AT_HAND}</p>` : html`<pre class="received" tabindex="0">${record}</pre>`}`
  return {title: `In quarantine: ${id}`, body}
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
