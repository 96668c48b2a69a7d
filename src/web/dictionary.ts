import {DatabaseSync} from 'node:sqlite'
import {Graph, layout} from '@dagrejs/dagre'
import {type Checking, findLastChecking} from '../build/checks.ts'
import {compileModels} from '../build/compile.ts'
import {readSources} from '../build/sources.ts'
import type {Config} from '../core/config.ts'
import {GENERATOR} from '../core/process.ts'
import type {BuildPlan, Check, Model, Seed, World} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {findCurrentRelease, type ReleaseManifest} from '../store/release.ts'
import {hasStateDb, openStateDb} from '../store/state-db.ts'
import {findKnownFields} from '../sync/mapped-fields.ts'
import {count, instant} from './figures.ts'
import {type Html, html, prose} from './html.ts'
import {renderPage} from './page-frame.ts'
import {viewState} from './pages.ts'
import {bySchema, renderColumns, renderTold} from './tables.ts'

interface Dictionary {
  plan: BuildPlan
  tables: readonly Table[]
  checks: readonly (Check & ReturnType<typeof findResult>)[]
  manifest: ReleaseManifest | undefined
}

type Table = ReturnType<typeof listTables>[number]

/** Models by schema, then seeds. */
function listTables({models, seeds, reads, columns}: BuildPlan) {
  const describe = (
    {name, description, grain, ...more}: Pick<Model, 'name' | 'description' | 'grain'> & Partial<Model>,
    kind: 'model' | 'work' | 'seed',
  ) => {
    const meaningOf = (column: string) => more.columns?.find((one) => one.name === column)?.meaning ?? ''
    return {
      name,
      kind,
      description,
      grain,
      contract: more.contract ?? null,
      columns: (columns.get(name) ?? []).map((column) => ({...column, meaning: meaningOf(column.name)})),
      reads: reads.get(name) ?? [],
      read_by: [...reads.keys()].filter((reader) => reads.get(reader)?.includes(name)).sort(),
    }
  }
  const aboutSeed = ({name, columns}: Seed) => ({
    name: `seed.${name}`,
    description: `Reference data from seeds/${name}.csv; a file of that name in LOANTAPE_SQL_DIR adds its lines, each in place of the one with its key.`,
    grain: columns.slice(0, 1),
  })
  return [
    ...models.map((model) => describe(model, model.isPublished ? 'model' : 'work')).sort(bySchema),
    ...seeds.map((seed) => describe(aboutSeed(seed), 'seed')),
  ]
}

/** Returns the tables, and a self-contained page with figures of the current release and results of the last checks. */
export async function describeTables(folder: DataFolder, config: Config, world: World) {
  const sources = readSources(config, await findKnownFields(folder, world))
  const plan = await compileModels(sources)
  const tables = listTables(plan)
  const manifest = findCurrentRelease(folder)?.manifest
  using stateDb = hasStateDb(folder) ? openStateDb(folder.stateDb) : undefined
  const checking = stateDb && findLastChecking(stateDb)
  const checks = sources.checks.map((check) => ({...check, ...findResult(check, checking)}))
  const dictionary = {plan, tables, checks, manifest}
  using db = new DatabaseSync(':memory:')
  const params = {checks, checked_at: checking?.checked_at, release_id: checking?.release_id}
  const body = html`<div class="with-contents">
${renderContents(dictionary)}
<main class="sheet">
<h1>Data dictionary</h1>
<ul class="facts">
${
  manifest
    ? html`<li>Release <b class="mono">${manifest.release_id}</b></li><li>as of <b>${manifest.as_of}</b></li><li>known at <b>${instant(manifest.known_at)}</b></li>`
    : html`<li>No release yet: no rows are counted.</li>`
}
<li>${GENERATOR}</li>
</ul>
<h2 id="models">How the tables are built</h2>
<p class="muted small">From left to right. A dashed frame is a table that is given (raw, seed) or not released (work). Point at a table to see its neighbours; follow it to its entry.</p>
${renderModelGraph(dictionary)}
${(await viewState('state/dictionary', {stateDb: {db}, params}))?.body}
<h2 id="tables">Tables</h2>
<p id="none" class="muted" hidden>Nothing matches.</p>
${tables.map((entry) => renderTable(entry, dictionary))}
<footer>Written by <code>loantape docs</code>. Percentages end in <code>_pct</code>; <code>ltv</code> columns are ratios; amounts are USD; timestamps are UTC.</footer>
</main>
</div>`
  return {tables, page: renderPage({title: 'loantape: data dictionary', body, script: 'dictionary.js'})}
}

function findResult({name, severity}: Check, checking: Checking | undefined) {
  const {failures, ids} = checking?.failed.find((entry) => entry.name === name) ?? {failures: 0, ids: []}
  const found = failures === 0 ? 'passed' : severity === 'error' ? 'failed' : 'warned'
  // Checks in a model's header are named after their condition, `unique(deal_id)`; checks in files have names.
  return {failures, ids, result: checking ? found : 'unknown', is_tag: name.includes('(')}
}

const CHARACTER_WIDTH = 7.3
const NODE_HEIGHT = 24

/** Each table stands to the right of those it reads; nodes link to `#<name>`. */
function renderModelGraph({tables, plan}: Dictionary): Html {
  const graph = new Graph()
  graph.setGraph({rankdir: 'LR', nodesep: 12, edgesep: 8, ranksep: 48, marginx: 4, marginy: 20})
  graph.setDefaultEdgeLabel(() => ({}))
  const raw = [...new Set([...plan.reads.values()].flat())].filter((name) => name.startsWith('raw.'))
  const names = [...raw, ...tables.map(({name}) => name)]
  for (const name of names)
    graph.setNode(name, {width: Math.round(name.length * CHARACTER_WIDTH) + 18, height: NODE_HEIGHT})
  for (const {name, reads} of tables)
    for (const read of reads) if (graph.hasNode(read)) graph.setEdge(read, name)
  layout(graph)
  // Edges are routed around tables in between.
  const edges = (graph.edges() as {v: string; w: string}[]).map(({v: from, w: to}) => {
    const {points} = graph.edge(from, to) as {points: {x: number; y: number}[]}
    return html`<polyline data-from="${from}" data-to="${to}" points="${points.map(({x, y}) => `${x.toFixed(1)},${y.toFixed(1)}`).join(' ')}"/>\n`
  })
  const nodes = names.map((name) => {
    const {x, y, width, height} = graph.node(name) as Record<'x' | 'y' | 'width' | 'height', number>
    const [schema = ''] = name.split('.')
    return html`<a href="#${name}"><g class="node ${['raw', 'seed'].includes(schema) ? 'given' : schema}" data-name="${name}"><rect x="${x - width / 2}" y="${y - height / 2}" width="${width}" height="${height}" rx="4"/><text x="${x}" y="${y + 4}" text-anchor="middle">${name}</text></g></a>\n`
  })
  const {width = 0, height = 0} = graph.graph() as {width?: number; height?: number}
  return html`<div class="graph" id="graph"><svg viewBox="0 0 ${Math.ceil(width)} ${Math.ceil(height)}" style="max-width: ${Math.ceil(width)}px" role="group" aria-label="Tables and what they are built from">
${edges}${nodes}</svg></div>`
}

const builtOf = ({name}: Table, {manifest}: Dictionary) => manifest?.models.find((one) => one.name === name)

function renderContents(dictionary: Dictionary): Html {
  const groups = [...Map.groupBy(dictionary.tables, ({name}) => name.split('.')[0] ?? '')]
  return html`<nav class="contents" aria-label="Contents">
<input id="search" type="search" placeholder="Search tables and columns" aria-label="Search tables and columns">
<p class="group">Overview</p>
<ul><li><a href="#models">How the tables are built</a></li><li><a href="#checks">Checks</a></li></ul>
${groups.map(([schema, entries]) => {
  const items = entries.map((entry) => {
    const rows = builtOf(entry, dictionary)?.rows
    return html`<li><a href="#${entry.name}"><span>${entry.name.slice(schema.length + 1)}</span><span class="muted">${rows !== undefined && count(rows)}</span></a></li>`
  })
  return html`<p class="group">${schema}</p>\n<ul>${items}</ul>\n`
})}</nav>`
}

function renderTable(entry: Table, dictionary: Dictionary): Html {
  const {name, kind, description} = entry
  const {plan, checks} = dictionary
  const built = builtOf(entry, dictionary)
  const prefix = `${name} `
  const own = checks.filter((check) => check.name.startsWith(prefix))
  const others = checks.filter((check) => !check.is_tag && plan.checkReads.get(check.name)?.includes(name))
  const facts = [
    built && html`<b>${count(built.rows)}</b> ${built.rows === 1 ? 'row' : 'rows'}`,
    built && html`built in <b>${count(built.duration_ms)} ms</b>`,
    kind === 'work' && 'built for others, not released',
    kind === 'seed' && 'reference data',
  ]
  return html`<section class="entry" id="${name}">
<h3 class="mono">${name}</h3>
<p>${prose(description)}</p>
${renderTold(entry, (other) => (other.startsWith('raw.') ? undefined : `#${other}`), facts)}
${renderColumns(entry.columns)}
${
  own.length + others.length > 0 &&
  html`<p class="small muted">Checks: ${[...own, ...others].map(
    ({name: check, result}, index) =>
      html`${index > 0 && ', '}<span class="${result}" title="${result}"><code>${check.replace(prefix, '')}</code>${result !== 'passed' && ` ${result}`}</span>`,
  )}</p>`
}
</section>
`
}
