import type {ChildProcess} from 'node:child_process'
import {existsSync, readdirSync, rmSync, statSync} from 'node:fs'
import {hostname} from 'node:os'
import {basename, join} from 'node:path'
import {codeOf} from './errors.ts'

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

/** Where a child lives that is not to have our environment and working folder. */
export interface Place {
  env: Record<string, string | undefined>
  cwd: string
}

/** So much of what a process logs is kept. */
const KEPT_BYTES = 32 * 1024

/** Lets what a child logs go where ours goes; what is returned tells its end, whole lines. */
export function passLogOn({stderr}: ChildProcess): () => string {
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
const PATIENCE_MS = 8_000

/** Asks a child to stop when the signal aborts, and stops it if it does not; disposing ends that. */
export function stopWith(child: ChildProcess, signal: AbortSignal): Disposable {
  const stop = () => {
    child.kill('SIGTERM')
    const last = setTimeout(() => child.kill('SIGKILL'), PATIENCE_MS)
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
