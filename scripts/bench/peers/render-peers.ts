import {availableParallelism} from 'node:os'
import type {Case, Loads} from './measure-tool.ts'
import type {Tool} from './tools.ts'

/** What became of a tool in one case. */
export type Outcome = {tool: Tool; loads: Loads} | {tool: Tool; reason: string}

/** The outcomes of one case. */
export interface Comparison {
  of: Case
  outcomes: readonly Outcome[]
}

const seconds = (ms: number) => (ms / 1000).toFixed(1)

/** The section of `docs/benchmarks.md`. */
export function renderPeers(comparisons: readonly Comparison[]): string {
  const rounds = comparisons[0]?.of.rounds ?? 1
  return `## Beside other tools

\`npm run bench peers -- --write\`, ${availableParallelism()} cores. The same server and deals for every tool, each load a process of its own${rounds > 1 ? `, the fastest of ${rounds} rounds` : ''}.
After every load rows, sums and versions are checked against the server. CPU and memory are of the first load. \`loantape sync\` goes on to models, checks and a release; the others end with one table: dlt and the script keep a history, PyAirbyte and Meltano the latest state. It stores amounts as decimals, PyAirbyte too, the others as floating point. Times in seconds.

${comparisons.map(renderComparison).join('\n')}
*tuned* is dlt with Parquet files, larger buffers and a worker a core; *Arrow tables* a generator of 10,000 rows at a time. Meltano runs \`tap-rest-api-msdk\` into \`target-duckdb\`
(\`scripts/bench/peers/meltano.yml\`). Versions are fixed in \`scripts/bench/peers/environments.ts\`.

`
}

function renderComparison({of, outcomes}: Comparison): string {
  const rows = outcomes.flatMap((one) => ('loads' in one ? [renderRow(one.tool, one.loads)] : []))
  const failures = outcomes.flatMap((one) =>
    'reason' in one ? [`${one.tool.name} is left out: ${one.reason}`] : [],
  )
  return `${of.deals.toLocaleString('en')} deals, ${of.delayMs} ms a page:

| tool | first | unchanged | 1 % changed | CPU | peak memory (MB) |
|---|---|---|---|---|---|
${rows.join('\n')}
${failures.map((failure) => `\n${failure}\n`).join('')}`
}

function renderRow({name}: Tool, {first, again, changed}: Loads): string {
  const cells = [
    name,
    seconds(first.wall_ms),
    seconds(again.wall_ms),
    seconds(changed.wall_ms),
    seconds(first.cpu_ms),
    first.peak_rss_mb,
  ]
  return `| ${cells.join(' | ')} |`
}
