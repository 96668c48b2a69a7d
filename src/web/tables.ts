import {quantity} from '../core/money.ts'
import {type ReleaseModel, readReleaseModels} from '../store/release.ts'
import {renderExact, renderObjects} from './blocks.ts'
import {addressOf} from './filter.ts'
import {type Html, html, prose} from './html.ts'
import type {Page, View} from './view.ts'

/** Rows that a table's page shows. */
const SAMPLE = 20

/** Formats that a table can be had in. */
export const FORMATS = ['csv', 'xlsx', 'json', 'parquet'] as const

/** The published tables of a release by schema, the ones that analysts read first. */
function listTables({release, mayRead}: Pick<View, 'release' | 'mayRead'>): ReleaseModel[] {
  const schemas = ['core', 'mart', 'accounting']
  const place = ({name}: ReleaseModel) =>
    (schemas.indexOf(name.split('.')[0] ?? '') + schemas.length + 1) % (schemas.length + 1)
  return readReleaseModels(release.dir)
    .filter(({is_published, name}) => is_published && mayRead(name))
    .sort((a, b) => place(a) - place(b) || (a.name < b.name ? -1 : 1))
}

/** `/tables`: every table of the release. */
export function viewTables(view: View): Page {
  const rows = new Map(view.release.manifest.tables.map(({name, rows}) => [name, rows]))
  const body = renderObjects(
    'table',
    listTables(view).map(({name, description}) => ({
      table: html`<a href="${addressOf(`/tables/${name}`, view.filter)}"><code>${breakable(name)}</code></a>`,
      what_it_is: prose(description),
      rows: rows.get(name),
    })),
  )
  return {title: 'Tables', body}
}

/** `/tables/<name>`: what a table means, how it is computed, and its first rows; undefined of no table. */
export async function viewTable(view: View, name: string): Promise<Page | undefined> {
  const {filter, release} = view
  const models = readReleaseModels(release.dir)
  const model = models.find((one) => one.name === name && one.is_published && view.mayRead(name))
  if (!model) return undefined
  const sample = await view.ask({sql: `from ${name}`, most: SAMPLE})
  const readBy = models.filter(({reads}) => reads.includes(name)).map((reader) => reader.name)
  const columns = model.columns.map(({name: column, type, meaning}) => ({
    column: html`<code>${breakable(column)}</code>`,
    type: html`<span class="muted small">${type}</span>`,
    meaning: prose(meaning),
  }))
  const checks = release.manifest.checks.results.filter((check) => check.name.startsWith(`${name} `))
  const body = html`<p class="lead">${prose(model.description)}</p>
<ul class="facts">
<li>one row per <b>${model.grain.join(', ')}</b></li>
${model.reads.length > 0 && html`<li>built from ${nameAll(model.reads, models)}</li>`}
${model.adds_up.length > 0 && html`<li>adds up over parts of a portfolio: <b>${model.adds_up.join(', ')}</b></li>`}
${readBy.length > 0 && html`<li>read by ${nameAll(readBy, models)}</li>`}
</ul>
<p class="downloads">Download ${FORMATS.map((format) => html`<a href="${addressOf(`/data/${name}.${format}`, filter)}">${format.toUpperCase()}</a> `)}</p>
${checks.map(({name: check, failures}) => html`<p class="notice"><code>${check}</code>: not so for ${quantity(failures, 'row')}.</p>`)}
<h2>Columns</h2>
${renderObjects('table', columns)}
<p><a href="${addressOf('/sql', filter, {q: [`summarize ${name}`]})}">What they hold</a></p>
<h2>First rows</h2>
${renderExact(sample)}
<details><summary>How it is computed</summary><pre tabindex="0">${model.sql}</pre></details>`
  return {title: name, body}
}

function nameAll(names: readonly string[], models: readonly ReleaseModel[]): Html {
  const isShown = (name: string) => models.some((model) => model.name === name && model.is_published)
  return html`${names.map((name, index) => html`${index > 0 && ', '}${isShown(name) ? html`<a href="/tables/${name}"><code>${name}</code></a>` : html`<code>${name}</code>`}`)}`
}

/** A name that a narrow window breaks behind its dots and underscores, not within its words. */
export const breakable = (name: string) =>
  name.split(/(?<=[._])/).map((part, index) => (index > 0 ? html`<wbr>${part}` : part))
