import {availableParallelism} from 'node:os'
import type {Environment} from './environments.ts'
import type {Case, Loads} from './measure-tool.ts'
import {LOANTAPE, TOOLS, type Tool} from './tools.ts'

/** What became of a tool in one case. */
export type Outcome = {tool: Tool; loads: Loads} | {tool: Tool; reason: string}

/** The outcomes of one case. */
export interface Comparison {
  of: Case
  outcomes: readonly Outcome[]
}

const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`

/** The section of `docs/benchmarks.md`. */
export function renderPeers(comparisons: readonly Comparison[]): string {
  const rounds = comparisons[0]?.of.rounds ?? 1
  return `## Beside other tools

Written by \`npm run bench peers -- --write\` on a machine with ${availableParallelism()} cores. The same server and deals for every tool; each
load is a process of its own, start included${rounds > 1 ? `, and the fastest of ${rounds} rounds` : ''}. *first* fills an empty folder, *unchanged* sees nothing new, *1 % changed* a
hundredth of the amounts moved. After every load the rows and the sum of \`loan_amount\` in the tool's own DuckDB file, and
the versions where it keeps any, are those that the server served. CPU and memory are of the first load: CPU with all children,
memory of the largest process. \`loantape sync\` goes on to models, checks and a release; the others end with one
table. It stores amounts as decimals, PyAirbyte too, the others as floating point. Nothing reports home, and PyAirbyte asks no registry.

${comparisons.map(renderComparison).join('\n')}
*tuned* is dlt with Parquet files, larger buffers, more than one file and a worker a core; *Arrow tables* a generator of
10,000 rows at a time with a hash of each. Meltano runs \`tap-rest-api-msdk\` into \`target-duckdb\`, fixed with their DuckDB in
\`scripts/bench/peers/meltano.yml\`. Fixed for the others, but not what these bring with them: ${renderVersions()}.

`
}

function renderComparison({of, outcomes}: Comparison): string {
  const own = outcomes.find(({tool}) => tool === LOANTAPE)
  const ownFirst = own && 'loads' in own ? own.loads.first.wall_ms : 0
  const rows = outcomes.flatMap((one) => ('loads' in one ? [renderRow(one.tool, one.loads, ownFirst)] : []))
  const failures = outcomes.flatMap((one) =>
    'reason' in one ? [`${one.tool.name} is left out: ${one.reason}`] : [],
  )
  return `${of.deals.toLocaleString('en')} deals, ${of.delayMs} ms a page:

| tool | keeps | first | unchanged | 1 % changed | first / loantape | CPU | peak memory |
|---|---|---|---|---|---|---|---|
${rows.join('\n')}
${failures.map((failure) => `\n${failure}\n`).join('')}`
}

function renderRow({name, keeps}: Tool, {first, again, changed}: Loads, ownFirst: number): string {
  const cells = [
    name,
    keeps,
    seconds(first.wall_ms),
    seconds(again.wall_ms),
    seconds(changed.wall_ms),
    (first.wall_ms / ownFirst).toFixed(2),
    seconds(first.cpu_ms),
    `${first.peak_rss_mb} MB`,
  ]
  return `| ${cells.join(' | ')} |`
}

function renderVersions(): string {
  const environments = new Set(
    TOOLS.flatMap(({environment}): Environment[] => (environment ? [environment] : [])),
  )
  const listOf = (requirements: readonly string[]) => requirements.map((one) => `\`${one}\``).join(', ')
  return [...environments].map(({name, requirements}) => `${name} (${listOf(requirements)})`).join(', ')
}
