import {type ChildProcess, spawn} from 'node:child_process'
import {randomBytes} from 'node:crypto'
import {addAbortListener} from 'node:events'
import {existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync} from 'node:fs'
import {hostname, tmpdir, userInfo} from 'node:os'
import {basename, dirname, extname, join} from 'node:path'
import packageJson from '../../package.json' with {type: 'json'}
import {DAY_MS, HOUR_MS} from './clock.ts'
import {codeOf, findMachineFault, newError, tolerate} from './errors.ts'

export const VERSION = packageJson.version

export const GENERATOR = `loantape ${VERSION}`

/** Returns `uid <number>` if the user has no name, as in containers. */
export function nameOfUser(): string {
  try {
    return userInfo().username
  } catch {
    return `uid ${process.getuid?.() ?? 'unknown'}`
  }
}

/** False if both start times are known and differ, since ids are reused. */
export function isProcessAlive(pid: number, start?: string | null): boolean {
  try {
    process.kill(pid, 0)
  } catch (error) {
    if (codeOf(error) !== 'EPERM') return false
  }
  return !start || [null, start].includes(readProcessStart(pid))
}

/** Our own pid means a predecessor: containers restart at pid 1. */
export function isOtherProcess(pid: number, start?: string): boolean {
  return pid !== process.pid && isProcessAlive(pid, start)
}

/** In the kernel's units; null if unknown. */
export function readProcessStart(pid: number): string | null {
  const stat = tolerate(['ENOENT', 'ESRCH', 'EACCES'], () => readFileSync(`/proc/${pid}/stat`, 'utf8'))
  // The command, field 2, may contain spaces and parentheses; the start time is field 22.
  return stat?.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null
}

/** Containers may share a host name, so one with its own pid namespace adds the namespace's number. */
export const HOST = [hostname(), findNamespace() ?? []].flat().join('.')

function findNamespace(): string | undefined {
  try {
    const [number] = /\d+/.exec(readlinkSync('/proc/self/ns/pid')) ?? []
    // Linux gives the machine's own pid namespace this number.
    return number === '4026531836' ? undefined : number
  } catch {
    return undefined
  }
}

/** Ends names that this process is writing: host, pid, start time if known, random text. */
export const WRITER_MARK = `@${HOST}-${process.pid}~${readProcessStart(process.pid) ?? ''}.${randomBytes(6).toString('hex')}`

/** Prefix of unfinished files and folders. The next writer removes those of dead processes. */
export const WRITING = '.writing-'

/** A writer in another container of this host name counts as gone after an idle hour, one on another machine after a day. */
export function isAbandoned(path: string): boolean {
  const [, host, pid, start] = /@([^@]+)-(\d+)(?:~(\d*)(?:\.\w+)?)?$/.exec(basename(path)) ?? []
  if (pid === undefined || path.endsWith(WRITER_MARK)) return false
  if (host === HOST) return !isOtherProcess(Number(pid), start)
  const {mtimeMs} = statSync(path, {throwIfNoEntry: false}) ?? {}
  const patience = host?.replace(/\.\d+$/, '') === hostname() ? HOUR_MS : DAY_MS
  return mtimeMs !== undefined && Date.now() - mtimeMs > patience
}

export function removeAbandoned(dir: string, prefix: string): void {
  if (!existsSync(dir)) return
  for (const name of readdirSync(dir)) {
    const path = join(dir, name)
    if (!name.startsWith(prefix) || !isAbandoned(path)) continue
    // It may belong to another user.
    tolerate(['EACCES', 'EPERM'], () => rmSync(path, {recursive: true, force: true}))
  }
}

/** Removed when disposed. Also removes those that dead processes left. */
export function makeTemporaryFolder(prefix: string): {path: string} & Disposable {
  const path = join(tmpdir(), `${prefix}${randomBytes(6).toString('hex')}${WRITER_MARK}`)
  try {
    removeAbandoned(tmpdir(), prefix)
    mkdirSync(path, {recursive: true, mode: 0o700})
  } catch (cause) {
    const problem = `Folder of temporary files '${tmpdir()}' cannot be written (${codeOf(cause)}).`
    throw findMachineFault(cause) ?? newError('NOT_WRITABLE', problem, {next: 'Set another TMPDIR.', cause})
  }
  return {path, [Symbol.dispose]: () => rmSync(path, {recursive: true, force: true})}
}

/** The program's entry file: beside the sources, or beside `dist/src` in a package. */
const ENTRY = join(
  import.meta.dirname,
  extname(import.meta.filename) === '.ts' ? '../../bin/loantape.js' : '../../../bin/loantape.js',
)

/** Of a child process; inherited by default. */
export interface Environment {
  env?: Record<string, string | undefined> | undefined
  cwd?: string | undefined
}

export interface ProcessEnd {
  code: number | null
  signal: string | null
  log?: string
}

/**
 * Runs a loantape command in its own process, so that leaks and crashes end with it. Its log is also written to ours.
 * @param limits when `signal` aborts, the process is asked to stop, then killed; `onStarted` gets its pid; `onPrinted` gets its
 *   output. Without `onPrinted` the output is dropped, so the process can outlive this one.
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
      // Processes it started, such as a vault agent, may hold its pipes open for days.
      const last = setTimeout(() => {
        child.stdout?.destroy()
        child.stderr?.destroy()
      }, REST_MS)
      child.once('close', () => clearTimeout(last))
    })
  })
  // One that did not start has no pid yet, and Node would signal our own process group.
  using _stopping = child.pid === undefined ? undefined : stopWith(child, stop)
  try {
    if (child.pid !== undefined) onStarted?.(child.pid)
    return await ended
  } catch (error) {
    child.kill('SIGKILL')
    throw error
  }
}

/** How long to wait for the rest of a log and an output once their process has ended. */
const REST_MS = 1_000

/** `words` is its output or its error message; `exitCode` is null if it was killed. */
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

/** Finds the last error message, with its `[CODE]`, in the log of a loantape command. */
export function findComplaint(log: string): string | undefined {
  const lines = log.trim().split('\n')
  const last = lines.findLastIndex((line) => line.startsWith(COMPLAINT))
  return last === -1 ? undefined : lines.slice(last).join('\n').slice(COMPLAINT.length)
}

const KEPT_BYTES = 32 * 1024

/** Copies a child's log to ours. The returned function reads the log's last whole lines. */
function passLogOn({stderr}: ChildProcess): () => string {
  let kept = Buffer.alloc(0)
  stderr?.on('data', (chunk: Buffer) => {
    // After an error on our stderr, `pipe` would stop reading and the child would wait forever.
    process.stderr.write(chunk)
    kept = Buffer.concat([kept, chunk]).subarray(-KEPT_BYTES)
  })
  return () => {
    const text = kept.toString()
    return kept.length < KEPT_BYTES ? text : text.slice(text.indexOf('\n') + 1)
  }
}

/** Time between SIGTERM and SIGKILL; container engines allow ten seconds in all. */
const TERM_MS = 8_000

/** Sends SIGTERM, then SIGKILL, when the signal aborts, until disposed. */
function stopWith(child: ChildProcess, signal: AbortSignal): Disposable {
  return addAbortListener(signal, () => {
    child.kill('SIGTERM')
    const last = setTimeout(() => child.kill('SIGKILL'), TERM_MS)
    child.once('exit', () => clearTimeout(last))
  })
}

/** Returns a temporary name beside a file. Removes what dead writers or this process left under such names. */
export function temporaryBeside(path: string): string {
  const name = `${WRITING}${basename(path)}`
  const temporary = join(dirname(path), `${name}${WRITER_MARK}`)
  removeAbandoned(dirname(path), `${name}@`)
  rmSync(temporary, {recursive: true, force: true})
  return temporary
}
