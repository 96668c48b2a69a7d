import {type ChildProcess, fork} from 'node:child_process'
import {getCompileCacheDir} from 'node:module'
import {tmpdir} from 'node:os'
import {dirname, extname, join} from 'node:path'
import {type ErrorCode, type Failure, newError, retellError} from '../errors.ts'

/** What a helper may be asked: functions of a module that its process loads. */
type Questions = Record<string, (...about: never[]) => unknown>

/** A process of its own that answers what pages ask; disposing it ends it. */
export interface Helper<Asked extends Questions> extends Disposable {
  /**
   * Asks once. What takes too long, or nobody waits for, ends the process; the next question starts another.
   *
   * @throws what the function threw; the error of `stopped` where there is no answer
   */
  ask<Name extends string & keyof Asked>(
    name: Name,
    about: Parameters<Asked[Name]>,
    limits: AskLimits,
  ): Promise<Awaited<ReturnType<Asked[Name]>>>
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

/** What a helper is like. */
export interface HelperOptions {
  /** What it loads, and what that is told. */
  args: readonly ['history' | 'release', ...string[]]
  /** The error of an answer that does not come, and its words before the reason. */
  stopped: readonly [code: ErrorCode, words: string]
  /** A process that nobody has asked for so long is ended: it holds memory. */
  idleMs?: number
  beforeStart?: () => void
}

/** What a helper sends back; after the last one it is ended. */
export type Told = {id: number} & ({answer: unknown} | {failure: Failure; isLast: boolean})

interface Running {
  process: ChildProcess
  /** Takes an answer, or nothing once the process has ended. */
  waiting: Map<number, (told?: Told) => void>
}

const ENTRY = join(import.meta.dirname, `helper-process${extname(import.meta.filename)}`)
const NOBODY_WAITS = 'nobody waits for it'

/** How often a reason to give up is looked for. */
const WATCH_MS = 100

/** Lets a process start from our compiled modules, in half the time. */
function shareCompiled(): {NODE_COMPILE_CACHE?: string} {
  const dir = getCompileCacheDir()
  return dir === undefined ? {} : {NODE_COMPILE_CACHE: dirname(dir)}
}

/** Creates a helper; its process starts when it is asked. */
export function createHelper<Asked extends Questions>(options: HelperOptions): Helper<Asked> {
  const {args, stopped, idleMs, beforeStart} = options
  const stop = (reason: string) => newError(stopped[0], `${stopped[1]}: ${reason}.`)
  let isClosed = false
  let lastId = 0
  let idle: NodeJS.Timeout | undefined
  let running: Running | undefined

  function start(): Running {
    beforeStart?.()
    const process = fork(ENTRY, args, {
      serialization: 'advanced',
      // It needs none of what may be secret.
      env: {TMPDIR: tmpdir(), ...shareCompiled()},
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    })
    const started: Running = {process, waiting: new Map()}
    process.on('message', (told: Told) => started.waiting.get(told.id)?.(told))
    process.once('exit', () => end(started))
    process.once('error', () => end(started))
    return started
  }

  function end(ended: Running | undefined): void {
    if (running === ended) running = undefined
    ended?.process.kill('SIGKILL')
    for (const take of ended?.waiting.values() ?? []) take()
  }

  async function ask(question: object, limits: AskLimits): Promise<unknown> {
    const {timeoutMs, signal, findReason, tries = 1} = limits
    if (isClosed) throw stop('nothing is read there any more')
    if (signal?.aborted) throw stop(NOBODY_WAITS)
    running ??= start()
    const asked = running
    clearTimeout(idle)
    lastId += 1
    const id = lastId
    const {promise, resolve, reject} = Promise.withResolvers<Told | undefined>()
    const giveUp = (reason: string) => {
      reject(stop(reason))
      end(asked)
    }
    const onAbort = () => giveUp(NOBODY_WAITS)
    const watch = () => {
      const reason = findReason?.()
      if (reason !== undefined) giveUp(reason)
    }
    const timers = [
      setTimeout(giveUp, timeoutMs, 'it took too long'),
      findReason && setInterval(watch, WATCH_MS),
    ]
    signal?.addEventListener('abort', onAbort, {once: true})
    asked.waiting.set(id, resolve)
    asked.process.send({id, ...question}, (error) => error && end(asked))
    const told = await promise.finally(() => {
      asked.waiting.delete(id)
      signal?.removeEventListener('abort', onAbort)
      for (const timer of timers) clearTimeout(timer)
      if (idleMs !== undefined) idle = setTimeout(end, idleMs, asked).unref()
    })
    if (told === undefined && tries > 1) return await ask(question, {...limits, tries: tries - 1})
    if (told === undefined) throw stop('its process ended')
    if ('answer' in told) return told.answer
    if (told.isLast) end(asked)
    throw retellError(told.failure)
  }

  return {
    ask: (name, about, limits) =>
      ask({name, about}, limits) as Promise<Awaited<ReturnType<Asked[typeof name]>>>,
    [Symbol.dispose]() {
      isClosed = true
      clearTimeout(idle)
      end(running)
    },
  }
}
