import {type StdioOptions, spawnSync} from 'node:child_process'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {z} from 'zod'
import type {Cost} from './cost.ts'
import {COMPILE_CACHE} from './set-up.ts'

const MEASURE = join(import.meta.dirname, 'peers/measure.py')
/** Most characters kept of a failed process's message. */
const REASON_LENGTH = 300

/** The {@link Cost} that a process prints. */
export const costRow = z.object({wall_ms: z.number(), cpu_ms: z.number(), peak_rss_mb: z.number()})
const measured = costRow.extend({exit_code: z.number()})

/** Node's command line, as in `bin/loantape.js`. */
export const NODE = [process.execPath, '--max-semi-space-size=8']

/** Runs a script of this folder to its end, with no other settings than `env`, and parses the line it prints. */
export function runScript(name: string, args: string[], env: Record<string, string> = {}): unknown {
  const around = {env: {PATH: process.env.PATH ?? '', NODE_COMPILE_CACHE: COMPILE_CACHE, ...env}}
  return JSON.parse(runProcess([...NODE, join(import.meta.dirname, name), ...args], around))
}

/** Working folder and environment of a process; by default those of this process. */
export interface Surroundings {
  cwd?: string
  env?: Record<string, string>
}

/**
 * Runs a program to its end.
 *
 * @returns what it wrote to stdout
 * @throws Error with its last message when it fails
 */
export function runProcess(command: string[], around: Surroundings = {}): string {
  const {stdout, stderr, status} = collect(command, around)
  if (status === 0) return stdout
  throw new Error(lastOf(stderr || stdout))
}

/**
 * Runs a program to its end and measures it and its children.
 *
 * @throws Error with its last message when it fails
 */
export function measureProcess(command: string[], around: Surroundings): Cost {
  const {stdout, stderr} = collect(['python3', MEASURE, ...command], around)
  if (stdout === '') throw new Error(lastOf(stderr))
  const {exit_code, ...cost} = measured.parse(JSON.parse(stdout))
  if (exit_code !== 0) throw new Error(lastOf(stderr))
  return cost
}

/** Servers that are measured have processes of their own, so that this one may wait. */
function collect([program = '', ...args]: string[], around: Surroundings) {
  const stdio: StdioOptions = ['ignore', 'pipe', 'pipe']
  const ended = spawnSync(program, args, {...around, stdio, encoding: 'utf8', maxBuffer: Number.MAX_VALUE})
  if (ended.error) throw ended.error
  return ended
}

/**
 * Returns the last message: of a Python error the line with its text, otherwise the last line with words. Hides the path of the
 * temporary folder.
 */
function lastOf(text: string): string {
  const lines = text.split('\n').map((line) => line.trim())
  const said = lines.filter((line) => /\w/.test(line))
  const message = said.findLast((line) => /^[\w.]*(Error|Exception|ERROR)\b/.test(line)) ?? said.at(-1)
  return (message ?? 'it said nothing').replaceAll(tmpdir(), '…').slice(0, REASON_LENGTH)
}
