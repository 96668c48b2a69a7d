import {join} from 'node:path'
import {z} from 'zod'
import {openDatabase} from '../../../src/store/database.ts'
import type {Cost} from '../cost.ts'
import {measureProcess} from '../run-process.ts'
import {COMPILE_CACHE, makeFolder, startServer} from '../set-up.ts'
import type {Place, Tool} from './tools.ts'

/** Deals, the server's delay per page in ms, and the number of rounds. */
export interface Case {
  deals: number
  delayMs: number
  rounds: number
}

/** The costs of a tool's three loads. */
export type Loads = Awaited<ReturnType<typeof measureTool>>

/**
 * Loads everything, again with nothing new, and again after one amount in a hundred changed.
 *
 * @param environment the tool's virtual environment; `''` without one
 * @throws Error when a load fails, or its result is not what the server served
 */
export async function measureTool(tool: Tool, environment: string, {deals, delayMs}: Case) {
  using server = await startServer(deals, delayMs)
  using folder = makeFolder()
  const {url} = server
  const place = {url, folder: folder.path, database: join(folder.path, 'loads.duckdb'), environment}
  const before = await readAmounts(url)
  const loadAndCheck = async (later: Amounts) => {
    const cost = load(tool, place)
    await checkResult(tool, place, before, later)
    return cost
  }
  const first = await loadAndCheck(before)
  const again = await loadAndCheck(before)
  await fetch(`${url}/change`)
  return {first, again, changed: await loadAndCheck(await readAmounts(url))}
}

/** Returns the fastest of each load over several rounds. */
export function fastestOf(rounds: readonly Loads[]): Loads {
  const fastest = (load: keyof Loads) =>
    rounds.map((loads) => loads[load]).reduce((a, b) => (b.wall_ms < a.wall_ms ? b : a))
  return {first: fastest('first'), again: fastest('again'), changed: fastest('changed')}
}

/**
 * Runs one load in a process with only these settings and a home folder of its own. The settings keep tools from sending
 * telemetry and from asking a registry.
 */
function load(tool: Tool, place: Place): Cost {
  const env = {
    PATH: process.env.PATH ?? '',
    HOME: place.folder,
    NODE_COMPILE_CACHE: COMPILE_CACHE,
    RUNTIME__DLTHUB_TELEMETRY: 'false',
    AIRBYTE_OFFLINE_MODE: '1',
    DO_NOT_TRACK: '1',
    ...tool.settings?.(place),
  }
  return measureProcess(tool.command(place), {cwd: tool.cwd?.(place) ?? place.folder, env})
}

/** Amounts of the deals in cents, in the server's order. */
type Amounts = readonly number[]

const page = z.object({
  data: z.array(z.object({loan_amount: z.number()})),
  next_cursor: z.string().nullable(),
})
const sums = z.object({rows: z.coerce.number(), cents: z.string()})

/** Reads the amounts from the server, independently of the tools. */
async function readAmounts(url: string): Promise<Amounts> {
  const amounts: number[] = []
  let cursor: string | null = ''
  while (cursor !== null) {
    const response = await fetch(`${url}/v1/deals?limit=100${cursor && `&cursor=${cursor}`}`)
    const {data, next_cursor} = page.parse(await response.json())
    for (const {loan_amount} of data) amounts.push(Math.round(loan_amount * 100))
    cursor = next_cursor
  }
  return amounts
}

/**
 * Compares a tool's tables with what the server served at first and later, to the cent, however amounts are stored.
 *
 * @throws Error when they differ
 */
async function checkResult({result}: Tool, place: Place, first: Amounts, later: Amounts): Promise<void> {
  if (!result) return
  const path = result.database?.(place) ?? place.database
  await using db = await openDatabase({attach: [{path, alias: 'tool', readOnly: true}]})
  await db.run('use tool')
  const read = (source: string) =>
    db.one(
      sums,
      `select count(*) as rows, cast(sum(cast(loan_amount as decimal(18, 2))) * 100 as bigint) as cents from ${source}`,
    )
  const {rows, cents} = await read(result.current)
  const expected = String(later.reduce((sum, amount) => sum + amount, 0))
  if (rows !== later.length || cents !== expected) {
    throw new Error(
      `a wrong result: ${rows} deals of ${cents} cents, expected ${later.length} of ${expected}`,
    )
  }
  const versions = result.versions && (await read(result.versions)).rows
  const changed = later.filter((amount, index) => amount !== first[index]).length
  if (versions !== undefined && versions !== first.length + changed)
    throw new Error(`a wrong history: ${versions} versions, expected ${first.length + changed}`)
}
