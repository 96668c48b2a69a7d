import {type ChildProcess, spawn} from 'node:child_process'
import {existsSync, readdirSync, rmSync, statSync} from 'node:fs'
import {hostname} from 'node:os'
import {basename, extname, join} from 'node:path'
import packageJson from '../../package.json' with {type: 'json'}
import {codeOf} from './errors.ts'

/** This program's version: `0.1.0`. */
export const VERSION = packageJson.version

/** This program and its version, as manifests name it. */
export const GENERATOR = `loantape ${VERSION}`

/** Whether a process with this id runs on this machine. */
export function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return codeOf(error) === 'EPERM'
  }
}

/**
 * Whether another process of this machine has this id. What bears our own was left by one before us: a container begins
 * to count at 1 each time.
 */
export function isOtherProcess(pid: number): boolean {
  return pid !== process.pid && isProcessAlive(pid)
}

/** Ends the name of what this process is still writing. */
export const WRITER_MARK = `@${hostname()}-${process.pid}`

/** What a process of another machine or container has not touched for this long, it does not write any more. */
const FOREIGN_MS = 86_400_000

/** Whether nobody writes this file or folder any more, whose name ends with the mark of who began it. */
export function isAbandoned(path: string): boolean {
  const [, host = hostname(), pid] = /(?:@([^@]+))?-(\d+)$/.exec(basename(path)) ?? []
  if (pid === undefined) return false
  if (host === hostname()) return !isOtherProcess(Number(pid))
  const {mtimeMs} = statSync(path, {throwIfNoEntry: false}) ?? {}
  return mtimeMs !== undefined && Date.now() - mtimeMs > FOREIGN_MS
}

/** Removes what processes that died were writing in a folder, under names that begin so. */
export function removeAbandoned(dir: string, prefix: string): void {
  if (!existsSync(dir)) return
  for (const name of readdirSync(dir)) {
    const path = join(dir, name)
    if (name.startsWith(prefix) && isAbandoned(path)) rmSync(path, {recursive: true, force: true})
  }
}

/** The program itself, which keeps compiled modules: beside the sources, or beside `dist/src` in a package. */
const ENTRY = join(
  import.meta.dirname,
  extname(import.meta.filename) === '.ts' ? '../../bin/loantape.js' : '../../../bin/loantape.js',
)

/** The environment of a child process; by default it inherits ours. */
export interface Environment {
  env?: Record<string, string | undefined> | undefined
  cwd?: string | undefined
}

/** How a process of loantape ended, and the end of what it logged. */
export interface ProcessEnd {
  code: number | null
  signal: string | null
  log?: string
}

/**
 * Runs a command of loantape in a process of its own, to its end: what it leaks, breaks or dies of ends with it. Its log goes where
 * ours goes.
 *
 * @param limits `signal` asks it to stop, and it is killed where it does not; `onStarted` is told its id at once; `onPrinted` gets what
 * it prints. Without `onPrinted` it outlives us: what it prints goes nowhere.
 */
export async function runLoantape(
  args: readonly string[],
  limits: {
    signal: AbortSignal
    onStarted?: (pid: number) => void
    onPrinted?: (chunk: Buffer) => void
  } & Environment,
): Promise<ProcessEnd> {
  const {signal: stop, onStarted, onPrinted, ...environment} = limits
  const child = spawn(process.execPath, [...process.execArgv, ENTRY, ...args], {
    stdio: ['ignore', onPrinted ? 'pipe' : 'ignore', 'pipe'],
    ...environment,
  })
  if (onPrinted) child.stdout?.on('data', onPrinted)
  const readLog = passLogOn(child)
  const ended = new Promise<ProcessEnd>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => resolve({code, signal, log: readLog()}))
  })
  using _stopping = stopWith(child, stop)
  try {
    if (child.pid !== undefined) onStarted?.(child.pid)
    return await ended
  } catch (error) {
    child.kill('SIGKILL')
    throw error
  }
}

const MOST_PRINTED = 64 * 1024 * 1024
const COMPLAINT = 'loantape: '

/** How a command ended, and its own words for people. */
interface CommandEnd {
  /** Null of one that was killed. */
  exitCode: number | null
  words: string
}

/** Carries out a command that somebody asked for, to its end, however long that takes; `signal` asks it to stop. */
export async function carryOutCommand(
  args: readonly string[],
  limits: {signal: AbortSignal} & Environment,
): Promise<CommandEnd> {
  const chunks: Buffer[] = []
  let length = 0
  const onPrinted = (chunk: Buffer) => {
    length += chunk.length
    if (length <= MOST_PRINTED) chunks.push(chunk)
  }
  const {code, log = ''} = await runLoantape(args, {...limits, onPrinted})
  if (code === 0) return {exitCode: code, words: Buffer.concat(chunks).toString().trim()}
  const lines = log.trim().split('\n')
  const last = lines.findLastIndex((line) => line.startsWith(COMPLAINT))
  const complaint = lines.slice(last).join('\n').slice(COMPLAINT.length)
  return {exitCode: code, words: last === -1 ? 'It ended without a word; see the log.' : complaint}
}

/** So much of what a process logs is kept. */
const KEPT_BYTES = 32 * 1024

/** Lets what a child logs go where ours goes; what is returned tells its end, whole lines. */
function passLogOn({stderr}: ChildProcess): () => string {
  let kept = Buffer.alloc(0)
  stderr?.pipe(process.stderr, {end: false})
  stderr?.on('data', (chunk: Buffer) => {
    kept = Buffer.concat([kept, chunk]).subarray(-KEPT_BYTES)
  })
  return () => {
    const text = kept.toString()
    return kept.length < KEPT_BYTES ? text : text.slice(text.indexOf('\n') + 1)
  }
}

/** From SIGTERM to SIGKILL, so that the whole is over within the ten seconds container engines give. */
const TERM_MS = 8_000

/** Asks a child to stop when the signal aborts, and stops it if it does not; disposing ends that. */
function stopWith(child: ChildProcess, signal: AbortSignal): Disposable {
  const stop = () => {
    child.kill('SIGTERM')
    const last = setTimeout(() => child.kill('SIGKILL'), TERM_MS)
    child.once('exit', () => clearTimeout(last))
  }
  if (signal.aborted) stop()
  signal.addEventListener('abort', stop)
  return {
    [Symbol.dispose]() {
      signal.removeEventListener('abort', stop)
    },
  }
}
