import {quantity} from '../core/money.ts'
import {type ReleaseModel, readReleaseModels} from '../store/release.ts'
import {renderExact, renderMeant} from './cells.ts'
import {linked} from './figures.ts'
import {addressOf} from './filter.ts'
import {type Html, html, prose} from './html.ts'
import {linkOf} from './pages.ts'
import type {AskingView, Page, View} from './view.ts'

export const FORMATS = ['csv', 'xlsx', 'json', 'parquet'] as const

/** Order of schemas; the blank stands for people's own. */
const SCHEMAS = ['core', 'mart', 'accounting', '', 'work']

function placeOf({name}: {name: string}): number {
  const place = SCHEMAS.indexOf(name.split('.')[0] ?? '')
  return place === -1 ? SCHEMAS.indexOf('') : place
}

/** What analysts read first comes first. */
export const bySchema = (a: {name: string}, b: {name: string}): number =>
  placeOf(a) - placeOf(b) || (a.name < b.name ? -1 : 1)

export function listTables({release, mayRead}: Pick<View, 'release' | 'mayRead'>): ReleaseModel[] {
  return readReleaseModels(release.dir)
    .filter(({is_published, name}) => is_published && mayRead(name))
    .sort(bySchema)
}

const SEEN_BY_VIEWERS = html`<p class="muted">Viewers can read all of these tables, here, on <a href="/sql">SQL</a> and as downloads: the lines of the journal and the hashes of borrowers’ e-mail addresses among them.</p>`

export function viewTables(view: AskingView): Page {
  const {webViewerToken, viewerTables} = view.config
  const rows = new Map(view.release.manifest.tables.map(({name, rows}) => [name, rows]))
  const body = renderMeant({
    columns: [
      {name: 'table', type: ''},
      {name: 'what_it_is_prose', type: ''},
      {name: view.filter.condition === undefined ? 'rows' : 'rows_of_all_deals', type: 'BIGINT'},
    ],
    rows: listTables(view).map(({name, description}) => [
      html`<a href="${addressOf(`/tables/${name}`, view.filter)}"><code>${breakable(name)}</code></a>`,
      description,
      rows.get(name),
    ]),
  })
  const isAll = webViewerToken !== undefined && viewerTables === undefined
  return {title: 'Tables', body: html`${isAll && SEEN_BY_VIEWERS}${body}`}
}

export async function viewTable(view: View, name: string): Promise<Page | undefined> {
  const {filter, release} = view
  const models = readReleaseModels(release.dir)
  const readable = listTables(view)
  const model = readable.find((one) => one.name === name)
  if (!model) return undefined
  const sample = await view.ask({sql: `from ${name}`, most: 20})
  const hrefOf = (other: string) =>
    readable.some((one) => one.name === other) ? addressOf(`/tables/${other}`, filter) : undefined
  const read_by = models.filter(({reads}) => reads.includes(name)).map((reader) => reader.name)
  const checks = release.manifest.checks.results.filter((check) => check.name.startsWith(`${name} `))
  const body = html`<p class="lead">${prose(model.description)}</p>
${renderTold({...model, read_by}, hrefOf)}
<p class="downloads">Download ${FORMATS.map((format) => html`<a href="${addressOf(`/data/${name}.${format}`, filter)}">${format.toUpperCase()}</a> `)}</p>
${checks.map(({name: check, failures}) => html`<p class="notice"><code>${check}</code>: not so for ${quantity(failures, 'row')}.</p>`)}
<h2>Columns</h2>
${renderColumns(model.columns)}
<p><a href="${addressOf('/sql', filter, {q: `summarize ${name}`})}">What they hold</a></p>
<h2>First rows</h2>
${renderExact(sample, linkOf(view))}
<details><summary>How it is computed</summary><pre tabindex="0">${model.sql}</pre></details>`
  return {title: name, body}
}

export const renderColumns = (columns: ReleaseModel['columns']): Html =>
  renderMeant({
    columns: ['column', 'type', 'meaning_prose'].map((name) => ({name, type: ''})),
    rows: columns.map(({name, type, meaning}) => [html`<code>${breakable(name)}</code>`, type, meaning]),
  })

type Told = Record<'grain' | 'reads' | 'read_by', readonly string[]> & {adds_up?: readonly string[]}

export function renderTold(
  {grain, reads, read_by, adds_up = []}: Told,
  hrefOf: (name: string) => string | undefined,
  facts: readonly (Html | string | false | undefined)[] = [],
): Html {
  const nameAll = (names: readonly string[]) =>
    names.map((name, index) => html`${index > 0 && ', '}${linked(html`<code>${name}</code>`, hrefOf(name))}`)
  const all = [
    ...facts,
    grain.length > 0 && html`one row per <b>${grain.join(', ')}</b>`,
    reads.length > 0 && html`built from ${nameAll(reads)}`,
    adds_up.length > 0 && html`adds up over parts of a portfolio: <b>${adds_up.join(', ')}</b>`,
    read_by.length > 0 && html`read by ${nameAll(read_by)}`,
  ]
  return html`<ul class="facts">
${all.map((fact) => fact && html`<li>${fact}</li>\n`)}</ul>`
}

const breakable = (name: string) =>
  name.split(/(?<=[._])/).map((part, index) => (index > 0 ? html`<wbr>${part}` : part))
