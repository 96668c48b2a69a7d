import {count, instant, table} from './figures.ts'
import {type Html, html, prose} from './html.ts'
import {renderPage} from './html-page.ts'
import {renderModelGraph} from './model-graph.ts'

/** A table as the dictionary describes it. */
export interface DictionaryTable {
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
  /** Null where there is no release to count in. */
  rows: number | null
  durationMs: number | null
  /** Profiles whose files hold it. */
  exports: readonly string[]
}

/** A check and what it last found. */
export interface DictionaryCheck {
  name: string
  severity: 'error' | 'warn'
  description: string
  tables: readonly string[]
  result: 'passed' | 'warned' | 'failed' | 'unknown'
  failures: number
  ids: readonly string[]
}

/** Everything the data dictionary says. */
export interface Dictionary {
  generator: string
  /** The release whose rows and times are shown. */
  release: {release_id: string; as_of: string; known_at: string} | null
  /** When the checks last ran, and on which release. */
  checked: {release_id: string; checked_at: string} | null
  tables: readonly DictionaryTable[]
  checks: readonly DictionaryCheck[]
}

/** The data dictionary as one self-contained page. */
export function renderDictionary(dictionary: Dictionary): string {
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
