import {type ChildProcess, spawn} from 'node:child_process'
import {randomBytes} from 'node:crypto'
import {existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync} from 'node:fs'
import {hostname, tmpdir, userInfo} from 'node:os'
import {basename, dirname, extname, join} from 'node:path'
import packageJson from '../../package.json' with {type: 'json'}
import {DAY_MS, HOUR_MS} from './clock.ts'
import {codeOf} from './errors.ts'

/** This program's version, such as `1.0.0`. */
export const VERSION = packageJson.version

/** This program and its version, as manifests name it. */
export const GENERATOR = `loantape ${VERSION}`

/** The user of the operating system; in a container it may have only a number. */
export function nameOfUser(): string {
  try {
    return userInfo().username
  } catch {
    return `uid ${process.getuid?.() ?? 'unknown'}`
  }
}

/** Whether a process with this id runs here; not if both starts are known and differ, since ids are reused. */
export function isProcessAlive(pid: number, start?: string | null): boolean {
  try {
    process.kill(pid, 0)
  } catch (error) {
    if (codeOf(error) !== 'EPERM') return false
  }
  return !start || [null, start].includes(readProcessStart(pid))
}

/** Whether another process of this machine is the one named. Our own pid means a predecessor: containers restart at pid 1. */
export function isOtherProcess(pid: number, start?: string): boolean {
  return pid !== process.pid && isProcessAlive(pid, start)
}

/** When the process with this pid started, in the kernel's units; null if unknown. */
export function readProcessStart(pid: number): string | null {
  try {
    // The command, field 2, may hold spaces and parentheses; the start time is field 22.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null
  } catch (error) {
    if (['ENOENT', 'ESRCH', 'EACCES'].includes(codeOf(error))) return null
    throw error
  }
}

/** Names this machine. Containers may share a name, so one with process ids of its own adds the number of their namespace. */
export const HOST = [hostname(), findNamespace() ?? []].flat().join('.')

function findNamespace(): string | undefined {
  try {
    const [number] = /\d+/.exec(readlinkSync('/proc/self/ns/pid')) ?? []
    // The machine's own namespace has this number on every Linux.
    return number === '4026531836' ? undefined : number
  } catch {
    return undefined
  }
}

/** Suffix of the names of what this process is still writing: host, pid, where known when it started, and a random text. */
export const WRITER_MARK = `@${HOST}-${process.pid}~${readProcessStart(process.pid) ?? ''}.${randomBytes(6).toString('hex')}`

/** Prefix of files and folders that are not yet whole; the next writer removes those of dead processes. */
export const WRITING = '.writing-'

/**
 * Whether the writer named at the end of a path, {@link WRITER_MARK}, is gone. One in another container of this name counts as gone
 * after an idle hour, one on another machine after a day.
 */
export function isAbandoned(path: string): boolean {
  const [, host, pid, start] = /@([^@]+)-(\d+)(?:~(\d*)(?:\.\w+)?)?$/.exec(basename(path)) ?? []
  if (pid === undefined || path.endsWith(WRITER_MARK)) return false
  if (host === HOST) return !isOtherProcess(Number(pid), start)
  const {mtimeMs} = statSync(path, {throwIfNoEntry: false}) ?? {}
  const patience = host?.replace(/\.\d+$/, '') === hostname() ? HOUR_MS : DAY_MS
  return mtimeMs !== undefined && Date.now() - mtimeMs > patience
}

/** Removes what dead processes left in a folder under names with this prefix. */
export function removeAbandoned(dir: string, prefix: string): void {
  if (!existsSync(dir)) return
  for (const name of readdirSync(dir)) {
    const path = join(dir, name)
    if (!name.startsWith(prefix) || !isAbandoned(path)) continue
    try {
      rmSync(path, {recursive: true, force: true})
    } catch (error) {
      // Another user's.
      if (!['EACCES', 'EPERM'].includes(codeOf(error))) throw error
    }
  }
}

/** Makes a folder for temporary files, removed when disposed, and removes those that dead processes left. */
export function makeTemporaryFolder(prefix: string): {path: string} & Disposable {
  removeAbandoned(tmpdir(), prefix)
  const path = join(tmpdir(), `${prefix}${randomBytes(6).toString('hex')}${WRITER_MARK}`)
  mkdirSync(path, {mode: 0o700})
  return {path, [Symbol.dispose]: () => rmSync(path, {recursive: true, force: true})}
}

/** The program, beside the sources, or beside `dist/src` in a package. */
const ENTRY = join(
  import.meta.dirname,
  extname(import.meta.filename) === '.ts' ? '../../bin/loantape.js' : '../../../bin/loantape.js',
)

/** The environment of a child process; by default it inherits ours. */
export interface Environment {
  env?: Record<string, string | undefined> | undefined
  cwd?: string | undefined
}

/** How a process of loantape ended, with the last lines of its log. */
export interface ProcessEnd {
  code: number | null
  signal: string | null
  log?: string
}

/**
 * Runs a command of loantape in its own process, so that leaks and crashes end with it. Its log is also written to ours.
 *
 * @param limits `signal` asks it to stop, then kills it; `onStarted` gets its pid; `onPrinted` gets its output. Without
 * `onPrinted` the output is dropped, so the process can outlive this one.
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
    child.once('exit', () => {
      // What it has started, such as the agent of a vault, may hold its pipes open for days.
      const last = setTimeout(() => {
        child.stdout?.destroy()
        child.stderr?.destroy()
      }, REST_MS)
      child.once('close', () => clearTimeout(last))
    })
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

/** How long the rest of a log and an output may take once their process has ended. */
const REST_MS = 1_000

/** Runs a command to its end: its output, or its error message, and its exit code, null if it was killed. */
export async function carryOutCommand(
  args: readonly string[],
  limits: {signal: AbortSignal} & Environment,
): Promise<{exitCode: number | null; words: string}> {
  const chunks: Buffer[] = []
  const onPrinted = (chunk: Buffer) => void chunks.push(chunk)
  const {code, log = ''} = await runLoantape(args, {...limits, onPrinted})
  if (code === 0) return {exitCode: code, words: Buffer.concat(chunks).toString().trim()}
  return {exitCode: code, words: findComplaint(log) ?? 'It ended without a message; see the log.'}
}

const COMPLAINT = 'loantape: '

/** The message with which a command of loantape ended, with its `[CODE]`, as the last in its log. */
export function findComplaint(log: string): string | undefined {
  const lines = log.trim().split('\n')
  const last = lines.findLastIndex((line) => line.startsWith(COMPLAINT))
  return last === -1 ? undefined : lines.slice(last).join('\n').slice(COMPLAINT.length)
}

/** How much of a process's log is kept. */
const KEPT_BYTES = 32 * 1024

/** Passes the log of a child on to ours; the returned function reads its last whole lines. */
function passLogOn({stderr}: ChildProcess): () => string {
  let kept = Buffer.alloc(0)
  stderr?.on('data', (chunk: Buffer) => {
    // After an error of ours, `pipe` would read no more, and the child wait for ever.
    process.stderr.write(chunk)
    kept = Buffer.concat([kept, chunk]).subarray(-KEPT_BYTES)
  })
  return () => {
    const text = kept.toString()
    return kept.length < KEPT_BYTES ? text : text.slice(text.indexOf('\n') + 1)
  }
}

/** From SIGTERM to SIGKILL; container engines allow ten seconds in all. */
const TERM_MS = 8_000

/** When the signal aborts, asks a child to stop, then kills it; disposing it ends that. */
function stopWith(child: ChildProcess, signal: AbortSignal): Disposable {
  const stop = () => {
    child.kill('SIGTERM')
    const last = setTimeout(() => child.kill('SIGKILL'), TERM_MS)
    child.once('exit', () => clearTimeout(last))
  }
  if (signal.aborted) stop()
  signal.addEventListener('abort', stop)
  return {[Symbol.dispose]: () => signal.removeEventListener('abort', stop)}
}

/** A temporary name beside a file; removes what dead writers and this process left under such names. */
export function temporaryBeside(path: string): string {
  const name = `${WRITING}${basename(path)}`
  const temporary = join(dirname(path), `${name}${WRITER_MARK}`)
  removeAbandoned(dirname(path), `${name}@`)
  rmSync(temporary, {recursive: true, force: true})
  return temporary
}
