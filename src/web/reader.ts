import {type ChildProcess, fork} from 'node:child_process'
import {addAbortListener} from 'node:events'
import {getCompileCacheDir} from 'node:module'
import {constants, getPriority, setPriority, tmpdir} from 'node:os'
import {dirname, extname, join} from 'node:path'
import type {Config} from '../core/config.ts'
import {type ErrorCode, findMachineFault, messageOf, newError, retellError} from '../core/errors.ts'
import {makeTemporaryFolder} from '../core/process.ts'
import {type DataFolder, listNames} from '../store/data-folder.ts'
import {queriesOver} from '../store/database.ts'
import {findCurrentRelease, type Release, readRelease, unlessDamaged} from '../store/release.ts'
import {type Block, objectsOf} from './cells.ts'
import {endOfMoment, type Filter} from './filter.ts'
import type {Told} from './helper-process.ts'
import type {questions as ofHistory} from './history-questions.ts'
import type {Asked, questions, ReleaseLimits, ReleaseReading} from './release-questions.ts'
import {createTurns} from './turns.ts'

interface Limits {
  timeoutMs: number
  idleMs: number
  /** Questions answered at once; 1 by default. */
  processes?: number
  /** Attempts if the process ends before it answers; 1 by default. */
  tries?: number
  /** Most waiting questions, in total and for each caller; no limit by default. */
  waiting?: number
  each?: number
  /** A question runs on when nobody waits for it: restarting the process takes longer. */
  goesOn?: boolean
  /** Pages and runs of jobs go first. */
  isLast?: boolean
}

export interface Turn {
  caller?: unknown
  /** Aborts the question, or its waiting. */
  signal?: AbortSignal
  /** Keeps the caller's place until then. */
  until?: Promise<unknown>
}

/** The error of a module that does not answer: its code and first words. */
const MODULES = {
  history: ['HISTORY_STOPPED', 'The history was not read to the end'],
  release: ['QUERY_STOPPED', 'Query stopped'],
} as const satisfies Record<string, readonly [ErrorCode, string]>

const NOBODY_WAITS = 'nobody waits for it'
const FEW_PROCESSES = {
  next: 'Free memory, or let this user run more processes (`ulimit -u`); then ask again.',
}

interface Helper {
  args: readonly string[]
  process?: ChildProcess | undefined
  /** Takes an answer, or why the process did not start, or nothing if it ends first. */
  take?: (told?: Told | Error) => void
  idle?: NodeJS.Timeout
}

const LAST = constants.priority.PRIORITY_BELOW_NORMAL

function requireProcess(helper: Helper, module: keyof typeof MODULES, isLast: boolean): ChildProcess {
  if (helper.process) return helper.process
  const path = join(import.meta.dirname, `${module}-questions${extname(import.meta.filename)}`)
  // Halves the start of the process.
  const cache = getCompileCacheDir()
  const process = fork(path, helper.args, {
    serialization: 'advanced',
    // No secrets.
    env: {TMPDIR: tmpdir(), ...(cache !== undefined && {NODE_COMPILE_CACHE: dirname(cache)})},
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  helper.process = process
  process.on('message', (told: Told) => helper.process === process && helper.take?.(told))
  process.on('exit', () => end(helper, process))
  process.on('error', (error) => end(helper, process, error))
  // At once: threads have the priority of the thread that starts them.
  if (isLast && process.pid !== undefined) setPriority(process.pid, Math.max(getPriority(), LAST))
  return process
}

/** Does nothing if the helper has another process by now. */
function end(helper: Helper, process = helper.process, error?: Error): void {
  if (process !== helper.process) return
  helper.process = undefined
  // One that did not start has no pid yet, and Node would kill our own process group.
  if (process?.pid !== undefined) process.kill('SIGKILL')
  helper.take?.(error)
}

/** The process that answered last is asked first. Disposing the pool ends all. */
function createHelpers<Asked extends Record<string, (...about: never[]) => unknown>>(
  module: keyof typeof MODULES,
  limits: Limits,
  argsOf: (index: number) => readonly string[] = () => [],
) {
  const {
    timeoutMs,
    idleMs,
    processes = 1,
    waiting = Infinity,
    each = Infinity,
    goesOn = false,
    isLast = false,
  } = limits
  const [code, words] = MODULES[module]
  const stop = (reason: string, more: {next?: string} = {}) =>
    isClosed
      ? newError('INTERRUPTED', `${words}: the server is being stopped.`, {
          kept: 'Nothing was changed.',
          next: 'Ask again once it runs again.',
        })
      : newError(code, `${words}: ${reason}.`, more)
  const helpers = Array.from({length: processes}, (_, index): Helper => ({args: argsOf(index)}))
  const free = [...helpers]
  const takeTurn = createTurns({running: processes, waiting, each})
  let isClosed = false

  async function askOf(
    helper: Helper,
    question: object,
    signal: AbortSignal | undefined,
    tries = limits.tries ?? 1,
  ): Promise<unknown> {
    if (isClosed || signal?.aborted) throw stop(NOBODY_WAITS)
    clearTimeout(helper.idle)
    // May throw, so before anything that has to be cleared.
    const process = requireProcess(helper, module, isLast)
    const {promise, resolve, reject} = Promise.withResolvers<Told | Error | undefined>()
    const giveUp = (reason: string) => {
      reject(stop(reason))
      end(helper)
    }
    using _gone = signal && addAbortListener(signal, () => giveUp(NOBODY_WAITS))
    const timer = setTimeout(giveUp, timeoutMs, 'it took too long')
    helper.take = resolve
    // Without a pid the next event is its error, and there is no channel.
    if (process.pid !== undefined) process.send(question, (error) => error && end(helper, process))
    const told = await promise.finally(() => {
      clearTimeout(timer)
      helper.idle = setTimeout(end, idleMs, helper).unref()
    })
    if (told === undefined && tries > 1) return await askOf(helper, question, signal, tries - 1)
    if (told === undefined) throw stop('its process ended')
    if (told instanceof Error)
      throw findMachineFault(told) ?? stop(`its process did not start (${messageOf(told)})`, FEW_PROCESSES)
    if ('answer' in told) return told.answer
    if (told.isLast) end(helper)
    throw retellError(told.failure)
  }

  return {
    /**
     * A question that takes too long, or that nobody waits for, is killed with its process; the next question starts a new one.
     * @throws what the function threw; DeferredError `WEB_BUSY`, `HISTORY_STOPPED`, `QUERY_STOPPED`, `INTERRUPTED`
     */
    async ask<Name extends string & keyof Asked>(
      name: Name,
      about: Parameters<Asked[Name]>,
      {caller = {}, signal = new AbortController().signal, until}: Turn = {},
    ): Promise<Awaited<ReturnType<Asked[Name]>>> {
      const work = async () => {
        const helper = free.pop()
        if (!helper) throw new Error('more turns than helpers')
        const answer = askOf(helper, {name, about}, goesOn ? undefined : signal)
        return await answer.finally(() => free.push(helper))
      }
      const answer = await takeTurn(caller, signal, work, until).catch((error: unknown) => {
        throw signal.aborted ? stop(NOBODY_WAITS) : error
      })
      return answer as Awaited<ReturnType<Asked[Name]>>
    },
    [Symbol.dispose]() {
      isClosed = true
      for (const helper of helpers) {
        clearTimeout(helper.idle)
        end(helper)
      }
    },
  }
}

/** Latest business date first, then latest `known_at`. */
export function listReleases(releases: string): Release[] {
  const order = ({manifest}: Release) => `${manifest.as_of} ${manifest.known_at}`
  return listNames(releases)
    .flatMap((name) => unlessDamaged(() => readRelease(join(releases, name))) ?? [])
    .sort((a, b) => (order(a) < order(b) ? 1 : -1))
}

function findRelease(
  folder: DataFolder,
  {values}: Pick<Filter, 'values'>,
  config: Config,
): Release | undefined {
  const [asOf, knownAt] = [values.get('as_of'), values.get('known_at')]
  if (asOf === null && knownAt === null) return findCurrentRelease(folder)
  const until = knownAt === null ? undefined : endOfMoment(knownAt, config)
  return listReleases(folder.releases).find(
    ({manifest}) =>
      (asOf === null || manifest.as_of === asOf) &&
      (until === undefined || manifest.known_at.slice(0, -1) <= until),
  )
}

export const queriesOf = (ask: (asked: Asked) => Promise<Block>) =>
  queriesOver(async (sql, params) => objectsOf(await ask({sql, params})))

export type Reader = ReturnType<ReturnType<typeof createReaderPool>['of']>

/** A question that fails or kills its process fails alone. */
export function createReaderPool(limits: Limits & ReleaseLimits) {
  const files = makeTemporaryFolder('loantape-reader-')
  const filesDir = files.path
  const helpers = createHelpers<typeof questions>('release', limits, (index) => {
    const reading: ReleaseReading = {...limits, filesDir, spillDir: join(filesDir, `spill${index}`)}
    return [JSON.stringify(reading)]
  })
  return {
    of: (dir: string) => ({
      filesDir,
      page: (asked: Asked) => helpers.ask('page', [dir, asked]),
      ask: (asked: Asked, turn?: Turn) => helpers.ask('person', [dir, asked], turn),
    }),
    [Symbol.dispose]() {
      helpers[Symbol.dispose]()
      files[Symbol.dispose]()
    },
  }
}

const QUESTIONS = {processes: 2, waiting: 20, each: 4, isLast: true}

const HISTORY = {processes: 4, waiting: 56, each: 20, tries: 2, goesOn: true}

const IDLE_MS = 300_000

/** Most releases with a process of their own for pages. */
const OPEN_RELEASES = 3

export function createReaders(folder: DataFolder, config: Config) {
  const pools = new DisposableStack()
  const create = (most: number, limits: Omit<Limits & ReleaseLimits, 'idleMs' | 'memoryMb'>) => {
    const memoryMb = Math.min(most, config.memoryMb ?? most)
    return pools.use(createReaderPool({...limits, memoryMb, idleMs: IDLE_MS}))
  }
  const people = create(512, {timeoutMs: config.questionTimeoutSeconds * 1000, ...QUESTIONS})
  const downloads = create(512, {
    // A worksheet of a million rows takes many minutes, and others download meanwhile.
    timeoutMs: 3_600_000,
    ...QUESTIONS,
    // Enough for a million rows of any table, and small enough for a small disk.
    fileBytes: 2e9,
    folderBytes: 4e9,
  })
  const pages = Array.from({length: OPEN_RELEASES}, () => ({
    dir: '',
    usedAt: 0,
    pool: create(1024, {timeoutMs: config.pageTimeoutSeconds * 1000}),
  }))
  return {
    find(filter: Pick<Filter, 'values'>) {
      const release = findRelease(folder, filter, config)
      if (!release) return undefined
      const {dir} = release
      const longestUnused = pages.reduce((one, other) => (one.usedAt <= other.usedAt ? one : other))
      const own = pages.find((one) => one.dir === dir) ?? longestUnused
      Object.assign(own, {dir, usedAt: performance.now()})
      return {release, pages: own.pool.of(dir), people: people.of(dir), downloads: downloads.of(dir)}
    },
    [Symbol.dispose]: () => pools.dispose(),
  }
}

type OfHistory = typeof ofHistory

export type History = ReturnType<ReturnType<typeof readHistory>['of']>

/** Processes start on demand. */
export function readHistory(config: Config) {
  const limits = {timeoutMs: config.historyTimeoutSeconds * 1000, idleMs: IDLE_MS, ...HISTORY}
  const helpers = createHelpers<OfHistory>('history', limits)
  return {
    of: (turn: Turn) => ({
      /** @throws what went wrong; DeferredError `HISTORY_STOPPED`, `WEB_BUSY` */
      ask: <Name extends keyof OfHistory>(
        name: Name,
        ...about: Parameters<OfHistory[Name]> extends [Config, ...infer Rest] ? Rest : never
      ) => helpers.ask(name, [config, ...about] as unknown as Parameters<OfHistory[Name]>, turn),
    }),
    [Symbol.dispose]: () => helpers[Symbol.dispose](),
  }
}
