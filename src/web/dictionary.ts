import {Graph, layout} from '@dagrejs/dagre'
import {JOURNAL_NAMES} from '../accounting/profiles.ts'
import {type Checking, findLastChecking} from '../build/checks.ts'
import {compileModels} from '../build/compile.ts'
import {readSources} from '../build/sources.ts'
import type {Config} from '../core/config.ts'
import {GENERATOR} from '../core/process.ts'
import type {BuildPlan, Check, Model, Seed, World} from '../core/types.ts'
import {PROFILE_NAMES} from '../export/table-files.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {findCurrentRelease, type ReleaseManifest} from '../store/release.ts'
import {hasStateDb, openStateDb} from '../store/state-db.ts'
import {findKnownFields} from '../sync/mapped-fields.ts'
import {count, instant, table} from './figures.ts'
import {type Html, html, prose} from './html.ts'
import {renderPage} from './page-frame.ts'

/** The data dictionary of all models, with the rows and times of the current release and the last checks. */
export async function describeTables(folder: DataFolder, config: Config, world: World): Promise<string> {
  const sources = readSources(config, await findKnownFields(folder))
  const plan = await compileModels(sources, world)
  const manifest = findCurrentRelease(folder)?.manifest
  const checking = readLastChecking(folder)
  const dictionary: Dictionary = {
    generator: GENERATOR,
    release: manifest ?? null,
    checked: checking ?? null,
    tables: [
      ...plan.models.map((model) => describeModel(model, plan, manifest)).toSorted(byName),
      ...plan.seeds.map((seed) => describeSeed(seed, plan)),
    ],
    checks: sources.checks.map((check) => describeCheck(check, plan, checking)),
  }
  return renderDictionary(dictionary)
}

function readLastChecking(folder: DataFolder): Checking | undefined {
  if (!hasStateDb(folder)) return undefined
  using stateDb = openStateDb(folder.stateDb)
  return findLastChecking(stateDb)
}

/** The order of the contents: tables for analysts first, tables of the build last. */
const SCHEMAS = ['core', 'mart', 'accounting']

function byName(a: DictionaryTable, b: DictionaryTable): number {
  const place = ({name, kind}: DictionaryTable) => {
    const known = SCHEMAS.indexOf(name.split('.')[0] ?? '')
    return kind === 'work' ? SCHEMAS.length + 1 : known === -1 ? SCHEMAS.length : known
  }
  return place(a) - place(b) || (a.name < b.name ? -1 : 1)
}

function describeModel(
  model: Model,
  plan: BuildPlan,
  manifest: ReleaseManifest | undefined,
): DictionaryTable {
  const {name, description, grain, isPublished} = model
  const types = new Map(plan.columns.get(name)?.map((column) => [column.name, column.type]))
  const built = manifest?.models.find((entry) => entry.name === name)
  return {
    name,
    kind: isPublished ? 'model' : 'work',
    description,
    grain,
    columns: model.columns.map((column) => ({
      name: column.name,
      type: types.get(column.name) ?? '',
      meaning: column.meaning,
    })),
    reads: plan.reads.get(name) ?? [],
    readBy: listReaders(name, plan),
    rows: built?.rows ?? null,
    durationMs: built?.duration_ms ?? null,
    exports: isPublished ? listProfiles(name) : [],
  }
}

const JOURNAL_TABLES = ['accounting.journal_line', 'accounting.opening_line']

/** Table profiles export every published table; journals are made from two. */
function listProfiles(table: string): string[] {
  return PROFILE_NAMES.filter((profile) => !JOURNAL_NAMES.includes(profile) || JOURNAL_TABLES.includes(table))
}

function describeSeed({name: seed}: Seed, plan: BuildPlan): DictionaryTable {
  const name = `seed.${seed}`
  const columns = plan.columns.get(name) ?? []
  return {
    name,
    kind: 'seed',
    description: `Reference data from seeds/${seed}.csv; a file of that name in LOANTAPE_SQL_DIR adds its lines, each in place of the one with its key.`,
    grain: columns.slice(0, 1).map((column) => column.name),
    columns: columns.map((column) => ({...column, meaning: ''})),
    reads: [],
    readBy: listReaders(name, plan),
    rows: null,
    durationMs: null,
    exports: [],
  }
}

const listReaders = (name: string, {reads}: BuildPlan) =>
  [...reads.keys()].filter((reader) => reads.get(reader)?.includes(name)).toSorted()

function describeCheck(check: Check, plan: BuildPlan, checking: Checking | undefined): DictionaryCheck {
  const {name, severity, description} = check
  const failure = checking?.failed.find((entry) => entry.name === name)
  const found = severity === 'error' ? 'failed' : 'warned'
  return {
    name,
    severity,
    description,
    tables: [...new Set(plan.checkReads.get(name))],
    result: checking === undefined ? 'unknown' : failure ? found : 'passed',
    failures: failure?.failures ?? 0,
    ids: failure?.ids ?? [],
  }
}

/** A table and what it is built from. */
interface GraphNode {
  /** `core.deal` */
  name: string
  /** Whether a model makes it; seeds and raw tables are inputs. */
  isModel: boolean
  reads: readonly string[]
}

const CHARACTER_WIDTH = 7.3
const NODE_HEIGHT = 24

/** The tables from left to right, each right of what it is built from; nodes are links to `#<name>`. */
function renderModelGraph(nodes: readonly GraphNode[]): Html {
  const graph = new Graph()
  graph.setGraph({rankdir: 'LR', nodesep: 12, edgesep: 8, ranksep: 48, marginx: 4, marginy: 20})
  graph.setDefaultEdgeLabel(() => ({}))
  for (const {name} of nodes) {
    graph.setNode(name, {width: Math.round(name.length * CHARACTER_WIDTH) + 18, height: NODE_HEIGHT})
  }
  const edges = nodes.flatMap(({name, reads}) =>
    reads.filter((read) => graph.hasNode(read)).map((read) => ({from: read, to: name})),
  )
  for (const {from, to} of edges) graph.setEdge(from, to)
  layout(graph)
  const {width = 0, height = 0} = graph.graph() as {width?: number; height?: number}
  return html`<div class="graph" id="graph"><svg viewBox="0 0 ${Math.ceil(width)} ${Math.ceil(height)}" style="max-width: ${Math.ceil(width)}px" role="group" aria-label="Tables and what they are built from">
${edges.map(({from, to}) => html`<path data-from="${from}" data-to="${to}" d="${drawEdge(graph, from, to)}"/>\n`)}${nodes.map((node) => renderNode(graph, node))}</svg></div>`
}

function renderNode(graph: Graph, {name, isModel}: GraphNode): Html {
  const {x, y, width, height} = boxOf(graph, name)
  const [schema = ''] = name.split('.')
  const left = (x - width / 2).toFixed(1)
  const top = (y - height / 2).toFixed(1)
  return html`<a href="#${name}"><g class="node ${isModel ? schema : 'given'}" data-name="${name}"><rect x="${left}" y="${top}" width="${width}" height="${height}" rx="4"/><text x="${x.toFixed(1)}" y="${(y + 4).toFixed(1)}" text-anchor="middle">${name}</text></g></a>\n`
}

interface Point {
  x: number
  y: number
}

const boxOf = (graph: Graph, name: string) => graph.node(name) as Point & {width: number; height: number}

/** The straight part of an edge before it bends. */
const STUB = 20

/** A smooth edge from the right of one node to the left of another, around the nodes between. */
function drawEdge(graph: Graph, from: string, to: string): string {
  const [source, target] = [boxOf(graph, from), boxOf(graph, to)]
  const {points} = graph.edge(from, to) as {points: Point[]}
  const start = {x: source.x + source.width / 2, y: source.y}
  const end = {x: target.x - target.width / 2, y: target.y}
  // Between neighbours there is one point, for a label.
  const around = points.length > 3 ? points.slice(1, -1) : []
  const bends = [{x: start.x + STUB, y: start.y}, ...around, {x: end.x - STUB, y: end.y}]
  const curves = bends.map((bend, index) => {
    const next = bends[index + 1]
    return `Q${at(bend)} ${at(next ? {x: (bend.x + next.x) / 2, y: (bend.y + next.y) / 2} : end)}`
  })
  return `M${at(start)}${curves.join('')}`
}

const at = ({x, y}: Point) => `${x.toFixed(1)},${y.toFixed(1)}`

/** A table as the dictionary describes it. */
interface DictionaryTable {
  /** `core.deal` */
  name: string
  /** A seed is reference data; a work table is built for others and not released. */
  kind: 'model' | 'work' | 'seed'
  description: string
  grain: readonly string[]
  columns: readonly {name: string; type: string; meaning: string}[]
  /** Models, seeds and raw tables it is built from. */
  reads: readonly string[]
  readBy: readonly string[]
  /** Null without a release. */
  rows: number | null
  durationMs: number | null
  /** Profiles whose files hold it. */
  exports: readonly string[]
}

/** A check and what it last found. */
interface DictionaryCheck {
  name: string
  severity: 'error' | 'warn'
  description: string
  tables: readonly string[]
  result: 'passed' | 'warned' | 'failed' | 'unknown'
  failures: number
  ids: readonly string[]
}

/** The content of the data dictionary. */
interface Dictionary {
  generator: string
  /** The release whose rows and times are shown. */
  release: {release_id: string; as_of: string; known_at: string} | null
  /** When the checks last ran, and on which release. */
  checked: {release_id: string; checked_at: string} | null
  tables: readonly DictionaryTable[]
  checks: readonly DictionaryCheck[]
}

/** The data dictionary as one self-contained page. */
function renderDictionary(dictionary: Dictionary): string {
  const {release, tables, checks} = dictionary
  const nodes = tables.map(({name, kind, reads}) => ({name, isModel: kind !== 'seed', reads}))
  const raw = [...new Set(tables.flatMap(({reads}) => reads))]
    .filter((name) => name.startsWith('raw.'))
    .map((name) => ({name, isModel: false, reads: []}))
  const body = html`<div class="with-contents">
${renderContents(dictionary)}
<main class="sheet">
<h1>Data dictionary</h1>
<ul class="facts">
${
  release
    ? html`<li>Release <b class="mono">${release.release_id}</b></li><li>as of <b>${release.as_of}</b></li><li>known at <b>${instant(release.known_at)}</b></li>`
    : html`<li>No release yet: no rows are counted.</li>`
}
<li>${dictionary.generator}</li>
</ul>
<h2 id="models">How the tables are built</h2>
<p class="muted small">From left to right. A dashed frame is a table that is given (raw, seed) or not released (work). Point at a table to see its neighbours; follow it to its entry.</p>
${renderModelGraph([...raw, ...nodes])}
<h2 id="checks">Checks</h2>
${renderChecks(dictionary)}
<h2 id="tables">Tables</h2>
<p id="none" class="muted" hidden>Nothing matches.</p>
${tables.map((entry) => renderTable(entry, checks))}
<footer>Written by <code>loantape docs</code>. Percentages end in <code>_pct</code>; <code>ltv</code> columns are ratios; amounts are USD; timestamps are UTC.</footer>
</main>
</div>`
  return renderPage({title: 'loantape: data dictionary', body, script: 'dictionary.js'})
}

function renderContents({tables}: Dictionary): Html {
  const groups = [...Map.groupBy(tables, ({name}) => name.split('.')[0] ?? '')]
  return html`<nav class="contents" aria-label="Contents">
<input id="search" type="search" placeholder="Search tables and columns" aria-label="Search tables and columns">
<p class="group">Overview</p>
<ul><li><a href="#models">How the tables are built</a></li><li><a href="#checks">Checks</a></li></ul>
${groups.map(
  ([schema, entries]) => html`<p class="group">${schema}</p>
<ul>${entries.map(({name, rows}) => html`<li><a href="#${name}"><span>${name.slice(schema.length + 1)}</span><span class="muted">${rows === null ? '' : count(rows)}</span></a></li>`)}</ul>
`,
)}</nav>`
}

function renderChecks({checks, checked}: Dictionary): Html {
  const own = checks.filter(({name}) => !name.includes('('))
  const tags = checks.filter(({name}) => name.includes('('))
  const found = tags.filter(({failures}) => failures > 0)
  const passed = tags.filter(({result}) => result === 'passed').length
  return html`<p class="muted small">${
    checked
      ? html`Last run ${instant(checked.checked_at)} on release <span class="mono">${checked.release_id}</span>.`
      : 'They have not been run here yet.'
  } A check of severity error lets nothing be released.</p>
${table(
  [
    {title: 'Check', cell: ({name}) => html`<code>${name}</code>`},
    {title: 'Demands', cell: ({description}) => prose(description)},
    {title: 'Severity', cell: ({severity}) => severity},
    {title: 'Last result', cell: renderResult},
  ],
  [...found, ...own],
)}
<p class="muted small">Beside these, ${tags.length} checks stand with their tables below${checked && `; ${passed} of them passed`}.</p>`
}

function renderResult({result, failures, ids}: DictionaryCheck): Html {
  const words = failures > 0 ? `${result}: ${count(failures)} ${failures === 1 ? 'row' : 'rows'}` : result
  const named = ids.slice(0, 5).join(', ')
  return html`<span class="state ${result}">${words}</span>${named !== '' && html`<div class="small muted">${named}${failures > 5 && ', …'}</div>`}`
}

function renderTable(entry: DictionaryTable, checks: readonly DictionaryCheck[]): Html {
  const {name, description, grain, columns, rows, durationMs} = entry
  const prefix = `${name} `
  const tags = checks.filter((check) => check.name.startsWith(prefix))
  const others = checks.filter((check) => !check.name.includes('(') && check.tables.includes(name))
  return html`<section class="entry" id="${name}">
<h3 class="mono">${name}</h3>
<p>${prose(description)}</p>
<ul class="facts">
${rows !== null && html`<li><b>${count(rows)}</b> ${rows === 1 ? 'row' : 'rows'}</li>`}
${durationMs !== null && html`<li>built in <b>${count(durationMs)} ms</b></li>`}
${grain.length > 0 && html`<li>one row per <b>${grain.join(', ')}</b></li>`}
${entry.kind === 'work' && html`<li>built for others, not released</li>`}
${entry.kind === 'seed' && html`<li>reference data</li>`}
${entry.exports.length > 0 && html`<li>exported as <b>${entry.exports.join(', ')}</b></li>`}
</ul>
<ul class="facts">
${entry.reads.length > 0 && html`<li>built from ${linkAll(entry.reads)}</li>`}
${entry.readBy.length > 0 && html`<li>read by ${linkAll(entry.readBy)}</li>`}
</ul>
<div class="scroll" tabindex="0"><table>
<thead><tr><th scope="col">Column</th><th scope="col">Type</th><th scope="col">Meaning</th></tr></thead>
<tbody>
${columns.map((column) => html`<tr><td class="column"><code>${column.name}</code></td><td class="type">${column.type}</td><td>${prose(column.meaning)}</td></tr>\n`)}</tbody>
</table></div>
${
  tags.length + others.length > 0 &&
  html`<p class="small muted">Checks: ${[...tags, ...others].map(
    (check, index) =>
      html`${index > 0 && ', '}<span class="${check.result}" title="${check.result}"><code>${check.name.startsWith(prefix) ? check.name.slice(prefix.length) : check.name}</code>${check.result !== 'passed' && ` ${check.result}`}</span>`,
  )}</p>`
}
</section>
`
}

const linkAll = (names: readonly string[]) =>
  names.map((name, index) => {
    const words = html`<code>${name}</code>`
    return html`${index > 0 && ', '}${name.startsWith('raw.') ? words : html`<a href="#${name}">${words}</a>`}`
  })
