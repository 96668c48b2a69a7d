import {spawn} from 'node:child_process'
import {once} from 'node:events'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {z} from 'zod'
import type {Cost} from './cost.ts'
import {COMPILE_CACHE} from './set-up.ts'

const MEASURE = join(import.meta.dirname, 'peers/measure.py')
/** Of what a failed process said, so much is kept. */
const REASON_LENGTH = 300

/** What a process prints of its {@link Cost}. */
export const costRow = z.object({wall_ms: z.number(), cpu_ms: z.number(), peak_rss_mb: z.number()})
const measured = costRow.extend({exit_code: z.number()})

/** As `bin/loantape.js` starts it. */
export const NODE = [process.execPath, '--max-semi-space-size=8']

/** Runs a script of this folder to its end, with no other settings than `env`, and reads the line it prints. */
export async function runScript(
  name: string,
  args: string[],
  env: Record<string, string> = {},
): Promise<unknown> {
  const around = {env: {PATH: process.env.PATH ?? '', NODE_COMPILE_CACHE: COMPILE_CACHE, ...env}}
  return JSON.parse(await runProcess([...NODE, join(import.meta.dirname, name), ...args], around))
}

/** Where and with which settings a process runs; with this process' own where none are given. */
export interface Surroundings {
  cwd?: string
  env?: Record<string, string>
}

/**
 * Runs a program to its end.
 *
 * @returns what it wrote to stdout
 * @throws Error with the last it said, when it fails
 */
export async function runProcess(
  [program = '', ...args]: string[],
  around: Surroundings = {},
): Promise<string> {
  const {output, errors, code} = await collect(program, args, around)
  if (code === 0) return output
  throw new Error(lastOf(errors || output))
}

/**
 * Runs a program to its end and measures it and its children.
 *
 * @throws Error with the last it said, when it fails
 */
export async function measureProcess(command: string[], around: Surroundings): Promise<Cost> {
  const {output, errors} = await collect('python3', [MEASURE, ...command], around)
  if (output === '') throw new Error(lastOf(errors))
  const {exit_code, ...cost} = measured.parse(JSON.parse(output))
  if (exit_code !== 0) throw new Error(lastOf(errors))
  return cost
}

async function collect(
  program: string,
  args: string[],
  around: Surroundings,
): Promise<{output: string; errors: string; code: number | null}> {
  const child = spawn(program, args, {...around, stdio: ['ignore', 'pipe', 'pipe']})
  const said = {output: '', errors: ''}
  child.stdout.on('data', (chunk: Buffer) => {
    said.output += chunk.toString()
  })
  child.stderr.on('data', (chunk: Buffer) => {
    said.errors += chunk.toString()
  })
  const [code] = await once(child, 'close')
  return {...said, code: z.number().nullable().parse(code)}
}

/** The last line that says something: of a Python error its message, without the machine's folders. */
function lastOf(text: string): string {
  const lines = text.split('\n').map((line) => line.trim())
  const said = lines.filter((line) => /\w/.test(line))
  const message = said.findLast((line) => /^[\w.]*(Error|Exception|ERROR)\b/.test(line)) ?? said.at(-1)
  return (message ?? 'it said nothing').replaceAll(tmpdir(), '…').slice(0, REASON_LENGTH)
}
