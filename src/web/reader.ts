import {type ChildProcess, fork} from 'node:child_process'
import {existsSync, readdirSync} from 'node:fs'
import {getCompileCacheDir} from 'node:module'
import {tmpdir} from 'node:os'
import {dirname, extname, join} from 'node:path'
import type {Config} from '../core/config.ts'
import {type ErrorCode, newError, retellError} from '../core/errors.ts'
import {makeTemporaryFolder} from '../core/process.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {queriesOver} from '../store/database.ts'
import {findCurrentRelease, type Release, readRelease, unlessDamaged} from '../store/release.ts'
import {type Block, objectsOf} from './cells.ts'
import {endOfMoment, type Filter} from './filter.ts'
import type {Told} from './helper-process.ts'
import type {questions as ofHistory} from './history-questions.ts'
import type {Asked, questions, ReleaseLimits, ReleaseReading} from './release-questions.ts'
import {createTurns} from './turns.ts'

/** How processes answer. */
interface Limits {
  /** How long an answer may take. */
  timeoutMs: number
  /** After this time an idle process is ended, to free its memory. */
  idleMs: number
  /** How many questions are answered at once; 1 by default. */
  processes?: number
  /** How often to ask if the process ends before it answers; once by default. */
  tries?: number
  /** How many questions wait, and how many each caller has at once; any number by default. */
  waiting?: number
  each?: number
  /** A question goes on once nobody wants its answer: to start another process takes longer. */
  goesOn?: boolean
}

/** Whose turn a question waits for; by default each is one of its own. */
export interface Turn {
  caller?: unknown
  /** Ends the question, or its waiting, once nobody wants the answer any more. */
  signal?: AbortSignal
  /** Keeps the caller's place after the answer. */
  until?: Promise<unknown>
}

/** What answers questions: a module, and the error when no answer comes with its words before the reason. */
const MODULES = {
  history: ['HISTORY_STOPPED', 'The history was not read to the end'],
  release: ['QUERY_STOPPED', 'Query stopped'],
} as const satisfies Record<string, readonly [ErrorCode, string]>

const NOBODY_WAITS = 'nobody waits for it'

/** A process that answers one question after the other, so that each has its own time. */
interface Helper {
  module: keyof typeof MODULES
  args: readonly string[]
  process?: ChildProcess | undefined
  /** Takes an answer, or nothing if the process ends before. */
  take?: (told?: Told) => void
  idle?: NodeJS.Timeout
}

/** The process of a helper, which is started when it is needed. */
function requireProcess(helper: Helper): ChildProcess {
  if (helper.process) return helper.process
  const path = join(import.meta.dirname, `${helper.module}-questions${extname(import.meta.filename)}`)
  // With it a process starts in half the time.
  const cache = getCompileCacheDir()
  const process = fork(path, helper.args, {
    serialization: 'advanced',
    // It needs no secrets.
    env: {TMPDIR: tmpdir(), ...(cache !== undefined && {NODE_COMPILE_CACHE: dirname(cache)})},
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  process.on('message', (told: Told) => helper.process === process && helper.take?.(told))
  process.on('exit', () => end(helper, process))
  process.on('error', () => end(helper, process))
  helper.process = process
  return process
}

/** Ends the process of a helper, unless it has another by now. */
function end(helper: Helper, process = helper.process): void {
  if (process !== helper.process) return
  helper.process = undefined
  process?.kill('SIGKILL')
  helper.take?.()
}

/**
 * Asks processes, the one that answered last first. Disposing what is returned ends them.
 *
 * @typeParam Asked the functions of the module
 * @param argsOf the arguments of each process
 */
function createHelpers<Asked extends Record<string, (...about: never[]) => unknown>>(
  module: keyof typeof MODULES,
  limits: Limits,
  argsOf: (index: number) => readonly string[] = () => [],
) {
  const {timeoutMs, idleMs, processes = 1, waiting = Infinity, each = Infinity, goesOn = false} = limits
  const [code, words] = MODULES[module]
  const stop = (reason: string) => newError(code, `${words}: ${reason}.`)
  const helpers = Array.from({length: processes}, (_, index): Helper => ({module, args: argsOf(index)}))
  const free = [...helpers]
  const takeTurn = createTurns({running: processes, waiting, each})
  let isClosed = false

  async function askOf(
    helper: Helper,
    question: object,
    signal: AbortSignal | undefined,
    tries = limits.tries ?? 1,
  ): Promise<unknown> {
    if (isClosed) throw stop('nothing is read there any more')
    if (signal?.aborted) throw stop(NOBODY_WAITS)
    clearTimeout(helper.idle)
    const {promise, resolve, reject} = Promise.withResolvers<Told | undefined>()
    const giveUp = (reason: string) => {
      reject(stop(reason))
      end(helper)
    }
    const onAbort = () => giveUp(NOBODY_WAITS)
    const timer = setTimeout(giveUp, timeoutMs, 'it took too long')
    signal?.addEventListener('abort', onAbort, {once: true})
    helper.take = resolve
    const process = requireProcess(helper)
    process.send(question, (error) => error && end(helper, process))
    const told = await promise.finally(() => {
      signal?.removeEventListener('abort', onAbort)
      clearTimeout(timer)
      helper.idle = setTimeout(end, idleMs, helper).unref()
    })
    if (told === undefined && tries > 1) return await askOf(helper, question, signal, tries - 1)
    if (told === undefined) throw stop('its process ended')
    if ('answer' in told) return told.answer
    if (told.isLast) end(helper)
    throw retellError(told.failure)
  }

  return {
    /**
     * Asks a process that is free, in turn. If the answer takes too long, or nobody waits for it, the process is killed; the next
     * question starts another.
     *
     * @throws what the function threw; DeferredError `WEB_BUSY`, `HISTORY_STOPPED`, `QUERY_STOPPED`
     */
    ask: <Name extends string & keyof Asked>(
      name: Name,
      about: Parameters<Asked[Name]>,
      {caller = {}, signal = new AbortController().signal, until}: Turn = {},
    ) =>
      new Promise<Awaited<ReturnType<Asked[Name]>>>((resolve, reject) => {
        const work = async () => {
          const helper = free.pop()
          if (!helper) throw new Error('more turns than helpers')
          const asked = askOf(helper, {name, about}, goesOn ? undefined : signal)
          const answer = asked.finally(() => free.push(helper))
          resolve(answer as Promise<Awaited<ReturnType<Asked[Name]>>>)
          await Promise.allSettled([answer, until])
        }
        takeTurn(caller, signal, work).catch((error: unknown) =>
          reject(signal.aborted ? stop(NOBODY_WAITS) : error),
        )
      }),
    [Symbol.dispose]() {
      isClosed = true
      for (const helper of helpers) {
        clearTimeout(helper.idle)
        end(helper)
      }
    },
  }
}

/** The releases in a folder, the latest business date first, and of one date what knows most. */
export function listReleases(releases: string): Release[] {
  if (!existsSync(releases)) return []
  const order = ({manifest}: Release) => `${manifest.as_of} ${manifest.known_at}`
  return readdirSync(releases)
    .filter((name) => !name.startsWith('.'))
    .flatMap((name) => unlessDamaged(() => readRelease(join(releases, name))) ?? [])
    .sort((a, b) => (order(a) < order(b) ? 1 : -1))
}

/** The release of a business date as known at an instant, or at the end of a day; the current one by default. */
function findRelease(
  folder: DataFolder,
  {values}: Pick<Filter, 'values'>,
  timeZone: string,
): Release | undefined {
  const [asOf] = values.get('as_of') ?? []
  const [knownAt] = values.get('known_at') ?? []
  if (asOf === undefined && knownAt === undefined) return findCurrentRelease(folder)
  const until = knownAt === undefined ? undefined : endOfMoment(knownAt, timeZone)
  return listReleases(folder.releases).find(
    ({manifest}) =>
      (asOf === undefined || manifest.as_of === asOf) &&
      (until === undefined || manifest.known_at.slice(0, -1) <= until),
  )
}

/** Queries whose rows are objects, from those that answer in columns and rows. */
export const queriesOf = (ask: (asked: Asked) => Promise<Block>) =>
  queriesOver(async (sql, params) => objectsOf(await ask({sql, params})))

/** Reads one release. */
export type Reader = ReturnType<ReturnType<typeof createReaderPool>['of']>

/**
 * Starts to read releases in separate processes; disposing what is returned ends them. A question that is not answered in time, or kills
 * its process, fails alone: the next one starts another process.
 */
export function createReaderPool(limits: Limits & ReleaseLimits) {
  const files = makeTemporaryFolder('loantape-reader-')
  const filesDir = files.path
  const helpers = createHelpers<typeof questions>('release', limits, (index) => {
    const reading: ReleaseReading = {...limits, filesDir, spillDir: join(filesDir, `spill${index}`)}
    return [JSON.stringify(reading)]
  })
  return {
    /** The reader of the release in a folder. */
    of: (dir: string) => ({
      /** The folder of requested files. */
      filesDir,
      /** Asks a question of our own. */
      page: (asked: Asked) => helpers.ask('page', [dir, asked]),
      /** Asks a person's question. */
      ask: (asked: Asked, turn?: Turn) => helpers.ask('person', [dir, asked], turn),
    }),
    [Symbol.dispose]() {
      helpers[Symbol.dispose]()
      files[Symbol.dispose]()
    },
  }
}

/** What people ask for themselves, or what they download: how much at once, how much waits, how much of it of one address. */
const QUESTIONS = {processes: 2, waiting: 20, each: 4}

/** What pages ask of the history. */
const HISTORY = {processes: 4, waiting: 56, each: 20, tries: 2, goesOn: true}

const IDLE_MS = 300_000

/** Releases whose pages have a process: the current one and earlier ones. */
const OPEN_RELEASES = 3

/** Creates what finds the readers of the release that an address asks for; disposing it ends their processes. */
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
    // More than a million rows of any table, and no more than a small disk has.
    fileBytes: 2e9,
    folderBytes: 4e9,
  })
  /** Each keeps what pages ask of the release in a folder. */
  const pages = Array.from({length: OPEN_RELEASES}, () => ({
    dir: '',
    usedAt: 0,
    pool: create(1024, {timeoutMs: config.pageTimeoutSeconds * 1000}),
  }))
  return {
    find(filter: Pick<Filter, 'values'>) {
      const release = findRelease(folder, filter, config.timeZone)
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

/** Answers questions about history, tapes and journals. */
export interface History {
  /** @throws what went wrong; DeferredError `HISTORY_STOPPED`, `WEB_BUSY` */
  ask<Name extends keyof OfHistory>(
    name: Name,
    ...about: Parameters<OfHistory[Name]> extends [Config, ...infer Rest] ? Rest : never
  ): Promise<Awaited<ReturnType<OfHistory[Name]>>>
}

/** Creates what answers for all pages, in processes that start when they are needed; disposing it ends them. */
export function readHistory(config: Config) {
  const limits = {timeoutMs: config.historyTimeoutSeconds * 1000, idleMs: IDLE_MS, ...HISTORY}
  const helpers = createHelpers<OfHistory>('history', limits)
  return {
    /** The history for a caller. */
    of: (turn: Turn): History => ({
      ask: (name, ...about) =>
        helpers.ask(name, [config, ...about] as unknown as Parameters<OfHistory[typeof name]>, turn),
    }),
    [Symbol.dispose]: () => helpers[Symbol.dispose](),
  }
}
