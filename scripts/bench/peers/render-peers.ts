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

/** The section of `docs/benchmarks.md`: a line a tool, the cases side by side; CPU and memory are of the last case. */
export function renderPeers(comparisons: readonly Comparison[]): string {
  const rounds = comparisons[0]?.of.rounds ?? 1
  const cases = comparisons.map(({of}) => `${of.deals.toLocaleString('en')} deals at ${of.delayMs} ms a page`)
  const loads = comparisons.flatMap(({of}) => [`${of.deals.toLocaleString('en')}: first`, 'unchanged'])
  const header = ['tool', ...loads, 'CPU', 'peak memory (MB)']
  const tools = comparisons[0]?.outcomes.map(({tool}) => tool) ?? []
  return `## Beside other tools

\`npm run bench peers -- --write\`, ${availableParallelism()} cores, ${cases.join(' and ')}. The same server and deals for every tool, each load a process of its own${rounds > 1 ? `, the fastest of ${rounds} rounds` : ''}. After every load rows, sums and versions are checked against the server. CPU and memory are of the last first load.
\`loantape sync\` goes on to models, checks and a release; the others end with one table: dlt and the script keep a history, PyAirbyte and Meltano the latest state. It stores amounts as decimals, PyAirbyte too, the others as floating point. Times in seconds.

| ${header.join(' | ')} |
|${header.map(() => '---|').join('')}
${tools.map((tool) => renderRow(tool, comparisons)).join('\n')}

*tuned* is dlt with Parquet files, larger buffers and a worker a core; *Arrow tables* a generator of 10,000 rows at a time; Meltano runs \`tap-rest-api-msdk\` into \`target-duckdb\`.
Versions are fixed in \`scripts/bench/peers/environments.ts\`.

`
}

/** A tool that failed in a case has the reason in place of its figures. */
function renderRow(tool: Tool, comparisons: readonly Comparison[]): string {
  const outcomes = comparisons.flatMap(({outcomes}) => outcomes.filter((one) => one.tool === tool))
  const times = outcomes.flatMap((one) =>
    'reason' in one
      ? [one.reason.replaceAll(/[|\s]+/g, ' '), '']
      : [one.loads.first, one.loads.again].map(({wall_ms}) => seconds(wall_ms)),
  )
  const last = outcomes.at(-1)
  const costs =
    last && 'loads' in last ? [seconds(last.loads.first.cpu_ms), last.loads.first.peak_rss_mb] : ['', '']
  return `| ${[tool.name, ...times, ...costs].join(' | ')} |`
}
