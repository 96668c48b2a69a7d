import {type ChildProcess, fork} from 'node:child_process'
import {tmpdir} from 'node:os'
import {extname, join} from 'node:path'

/** A process of its own that answers questions; disposing it ends it. */
export interface Child<Told> extends Disposable {
  /** Starts the process, where it does not run: before it is asked, or when it is. */
  start(): void
  /**
   * Asks once. What takes too long, or nobody waits for, ends the process.
   *
   * @throws Error that `stopped` makes of a reason
   */
  ask(question: object, limits: AskLimits): Promise<Told>
  /** Ends the process; the next question starts another. */
  end(): void
}

/** When an answer is given up. */
export interface AskLimits {
  timeoutMs: number
  /** Nobody waits for the answer any more. */
  signal?: AbortSignal | undefined
  /** Says why it is given up, looked at while it is waited for. */
  findReason?: (() => string | undefined) | undefined
  /** How often it is asked where the process ends before it has answered; once by default. */
  tries?: number
}

/** What a process is started with. */
interface ChildOptions {
  args?: readonly string[]
  stopped: (reason: string) => Error
  /** A process that nobody has asked for so long is ended: it holds memory. */
  idleMs?: number
  beforeStart?: () => void
}

interface Running {
  process: ChildProcess
  /** Takes an answer, or nothing once the process has ended. */
  waiting: Map<number, (told?: unknown) => void>
}

const NOBODY_WAITS = 'nobody waits for it'

/** How often a reason to give up is looked for. */
const WATCH_MS = 100

/** A process that runs a file of this folder, which answers `{id, …}` with the same `id`. */
export function createChild<Told extends object>(
  entry: string,
  {args = [], stopped, idleMs, beforeStart}: ChildOptions,
): Child<Told> {
  let running: Running | undefined
  let isClosed = false
  let lastId = 0
  let idle: NodeJS.Timeout | undefined

  function start(): Running {
    beforeStart?.()
    const process = fork(join(import.meta.dirname, `${entry}${extname(import.meta.filename)}`), args, {
      serialization: 'advanced',
      // It needs none of what may be secret.
      env: {TMPDIR: tmpdir()},
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    })
    const started: Running = {process, waiting: new Map()}
    process.on('message', ({id, ...told}: {id: number}) => started.waiting.get(id)?.(told))
    process.once('exit', () => end(started))
    process.once('error', () => end(started))
    return started
  }

  function end(ended: Running | undefined): void {
    if (running === ended) running = undefined
    ended?.process.kill('SIGKILL')
    for (const take of ended?.waiting.values() ?? []) take()
  }

  async function ask(question: object, limits: AskLimits): Promise<Told> {
    const {timeoutMs, signal, findReason, tries = 1} = limits
    if (isClosed) throw stopped('nothing is read there any more')
    if (signal?.aborted) throw stopped(NOBODY_WAITS)
    running ??= start()
    const asked = running
    clearTimeout(idle)
    lastId += 1
    const id = lastId
    const {promise, resolve, reject} = Promise.withResolvers<Told | undefined>()
    const stop = (reason: string) => {
      reject(stopped(reason))
      end(asked)
    }
    const onAbort = () => stop(NOBODY_WAITS)
    const watch = () => {
      const reason = findReason?.()
      if (reason !== undefined) stop(reason)
    }
    const timers = [
      setTimeout(stop, timeoutMs, 'it took too long'),
      findReason && setInterval(watch, WATCH_MS),
    ]
    signal?.addEventListener('abort', onAbort, {once: true})
    asked.waiting.set(id, (told) => resolve(told as Told | undefined))
    asked.process.send({id, ...question}, (error) => error && end(asked))
    const told = await promise.finally(() => {
      asked.waiting.delete(id)
      signal?.removeEventListener('abort', onAbort)
      for (const timer of timers) clearTimeout(timer)
      if (idleMs !== undefined) idle = setTimeout(end, idleMs, asked).unref()
    })
    if (told !== undefined) return told
    if (tries > 1) return await ask(question, {...limits, tries: tries - 1})
    throw stopped('its process ended')
  }

  return {
    start: () => {
      running ??= start()
    },
    ask,
    end: () => end(running),
    [Symbol.dispose]() {
      isClosed = true
      clearTimeout(idle)
      end(running)
    },
  }
}
