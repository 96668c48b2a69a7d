import {parseArgs} from 'node:util'
import {z} from 'zod'
import {installEnvironment} from './peers/environments.ts'
import {type Case, fastestOf, measureTool} from './peers/measure-tool.ts'
import {type Outcome, renderPeers} from './peers/render-peers.ts'
import {LOANTAPE, TOOLS, type Tool} from './peers/tools.ts'
import {publishSection} from './set-up.ts'

const SIZES = [
  {deals: 10_000, delayMs: 20},
  {deals: 100_000, delayMs: 0},
]
const ROUNDS = 2

const whole = z.coerce.number().int()

/**
 * Loads the same deals with loantape and with the tools people would use instead, and says what each cost; with
 * `--write` also in `docs/benchmarks.md`. `--deals`, `--delay` and `--rounds` make one small case of it.
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

/** Every tool once, and then again: what else the machine does meets all of them. */
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

/** A tool that failed in any round has failed. */
function mergeRounds(tool: Tool, outcomes: readonly Outcome[]): Outcome {
  const own = outcomes.filter((one) => one.tool === tool)
  const failure = own.find((one) => 'reason' in one)
  return failure ?? {tool, loads: fastestOf(own.flatMap((one) => ('loads' in one ? [one.loads] : [])))}
}

/** A tool that does not work here is told of in words; without loantape there is nothing to compare. */
async function tryTool(tool: Tool, of: Case): Promise<Outcome> {
  try {
    const environment = tool.environment ? await installEnvironment(tool.environment) : ''
    return {tool, loads: await measureTool(tool, environment, of)}
  } catch (error) {
    if (tool === LOANTAPE) throw error
    process.exitCode = 1
    const reason = error instanceof Error ? error.message : String(error)
    process.stderr.write(`${tool.name}: ${reason}\n`)
    return {tool, reason}
  }
}
