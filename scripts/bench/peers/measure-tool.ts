import {join} from 'node:path'
import type {Cost} from '../cost.ts'
import {measureProcess} from '../run-process.ts'
import {COMPILE_CACHE, makeFolder, startServer} from '../set-up.ts'
import {checkResult, expectResult, readAmounts} from './check-result.ts'
import type {Place, Tool} from './tools.ts'

/** Deals, the server's delay per page in ms, and how often everything is done. */
export interface Case {
  deals: number
  delayMs: number
  rounds: number
}

/** What the three loads of a tool cost. */
export type Loads = Awaited<ReturnType<typeof measureTool>>

/**
 * Loads everything, once more with nothing new, and after a hundredth of the amounts moved.
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
  const first = await load(tool, place)
  await checkResult(tool, place, expectResult(before, before))
  const again = await load(tool, place)
  await checkResult(tool, place, expectResult(before, before))
  await fetch(`${url}/change`)
  const after = await readAmounts(url)
  const changed = await load(tool, place)
  await checkResult(tool, place, expectResult(before, after))
  return {first, again, changed}
}

/** Of several rounds the fastest of each load. */
export function fastestOf(rounds: readonly Loads[]): Loads {
  const fastest = (load: keyof Loads) =>
    rounds.map((loads) => loads[load]).reduce((a, b) => (b.wall_ms < a.wall_ms ? b : a))
  return {first: fastest('first'), again: fastest('again'), changed: fastest('changed')}
}

/** One load, in a process that has no settings but these and nobody's home; no tool reports home or asks a registry. */
function load(tool: Tool, place: Place): Promise<Cost> {
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
