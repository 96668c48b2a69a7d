import {availableParallelism} from 'node:os'
import {parseArgs} from 'node:util'
import {z} from 'zod'
import {installEnvironment} from './peers/environments.ts'
import {type Case, fastestOf, type Loads, measureTool} from './peers/measure-tool.ts'
import {LOANTAPE, TOOLS, type Tool} from './peers/tools.ts'
import {publishSection} from './set-up.ts'

const SIZES = [
  {deals: 10_000, delayMs: 20},
  {deals: 100_000, delayMs: 0},
]
const ROUNDS = 2

const whole = z.coerce.number().int()

/**
 * Benchmarks loading the same deals with loantape and with comparable tools. With `--write`, updates `docs/benchmarks.md`.
 * `--deals` (with `--delay`, ms) measures one case of that size; `--rounds` sets how often.
 */
export async function benchPeers(): Promise<void> {
  const comparisons = []
  for (const of of readCases()) comparisons.push({of, outcomes: await compareTools(of)})
  publishSection(renderPeers(comparisons))
}

function readCases(): Case[] {
  const {values} = parseArgs({
    args: process.argv.slice(3),
    options: {
      deals: {type: 'string'},
      delay: {type: 'string', default: '0'},
      rounds: {type: 'string', default: String(ROUNDS)},
      write: {type: 'boolean'},
    },
  })
  const rounds = whole.min(1).parse(values.rounds)
  if (values.deals === undefined) return SIZES.map((size) => ({...size, rounds}))
  return [{deals: whole.min(1).parse(values.deals), delayMs: whole.min(0).parse(values.delay), rounds}]
}

/** Runs every tool once per round, so that other load on the machine affects all of them alike. */
async function compareTools(of: Case): Promise<Outcome[]> {
  const outcomes: Outcome[] = []
  for (let round = 1; round <= of.rounds; round += 1) {
    for (const tool of TOOLS) {
      process.stderr.write(`${of.deals} deals, ${of.delayMs} ms a page, round ${round}: ${tool.name} …\n`)
      outcomes.push(await tryTool(tool, of))
    }
  }
  return TOOLS.map((tool) => mergeRounds(tool, outcomes))
}

/** Returns the fastest loads of a tool's rounds, or its first failure. */
function mergeRounds(tool: Tool, outcomes: readonly Outcome[]): Outcome {
  const own = outcomes.filter((one) => one.tool === tool)
  const failure = own.find((one) => 'reason' in one)
  return failure ?? {tool, loads: fastestOf(own.flatMap((one) => ('loads' in one ? [one.loads] : [])))}
}

/** Measures a tool. A failure becomes the reason of its outcome, except for loantape: without it there is nothing to compare. */
async function tryTool(tool: Tool, of: Case): Promise<Outcome> {
  try {
    const environment = tool.environment ? installEnvironment(tool.environment) : ''
    return {tool, loads: await measureTool(tool, environment, of)}
  } catch (error) {
    if (tool === LOANTAPE) throw error
    process.exitCode = 1
    const reason = error instanceof Error ? error.message : String(error)
    process.stderr.write(`${tool.name}: ${reason}\n`)
    return {tool, reason}
  }
}

/** A tool's loads in one case, or why it failed. */
type Outcome = {tool: Tool; loads: Loads} | {tool: Tool; reason: string}

/** The outcomes of one case. */
interface Comparison {
  of: Case
  outcomes: readonly Outcome[]
}

const seconds = (ms: number) => (ms / 1000).toFixed(1)

/** Renders the section of `docs/benchmarks.md`: one row per tool, the cases side by side. CPU and memory are those of the last case. */
function renderPeers(comparisons: readonly Comparison[]): string {
  const rounds = comparisons[0]?.of.rounds ?? 1
  const cases = comparisons.map(({of}) => `${of.deals.toLocaleString('en')} deals at ${of.delayMs} ms a page`)
  const loads = comparisons.flatMap(({of}) => [`${of.deals.toLocaleString('en')}: first`, 'unchanged'])
  const header = ['tool', ...loads, 'CPU', 'peak memory (MB)']
  const tools = comparisons[0]?.outcomes.map(({tool}) => tool) ?? []
  return `## Beside other tools

\`npm run bench peers -- --write\`, ${availableParallelism()} cores, ${cases.join(' and ')}. Each load is a process of its own${rounds > 1 ? `, the fastest of ${rounds} rounds` : ''}. Rows, sums and versions are checked against the server. CPU and memory are of the last first load.
\`loantape sync\` goes on to models, checks and a release; the others end with one table: dlt and the script with its history, PyAirbyte and Meltano with the latest state. loantape and PyAirbyte store amounts as decimals, the others as floating point.

| ${header.join(' | ')} |
|${header.map(() => '---|').join('')}
${tools.map((tool) => renderRow(tool, comparisons)).join('\n')}

*tuned* is dlt with Parquet files, larger buffers and a worker a core; *Arrow tables* a generator of 10,000 rows at a time. \`scripts/bench/peers/environments.ts\` fixes versions.

`
}

/** Renders a tool's row; a case that failed shows the reason instead of figures. */
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
