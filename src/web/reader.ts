import {type ChildProcess, fork} from 'node:child_process'
import {existsSync, readdirSync} from 'node:fs'
import {getCompileCacheDir} from 'node:module'
import {tmpdir} from 'node:os'
import {dirname, extname, join} from 'node:path'
import pLimit from 'p-limit'
import type {Config} from '../core/config.ts'
import {codeOf, type ErrorCode, newError, retellError} from '../core/errors.ts'
import {makeTemporaryFolder} from '../core/process.ts'
import type {DataFolder} from '../store/data-folder.ts'
import type {Queries} from '../store/database.ts'
import {findCurrentRelease, type Release, readRelease} from '../store/release.ts'
import {type Block, objectsOf} from './cells.ts'
import type {Filter} from './filter.ts'
import type {Told} from './helper-process.ts'
import type {questions as ofHistory} from './history-questions.ts'
import type {Asked, questions, ReleaseLimits, ReleaseReading} from './release-questions.ts'

/** How long an answer may take, and after which time an idle process is ended, to free its memory. */
interface Times {
  timeoutMs: number
  idleMs: number
  /** How often to ask if the process ends before it answers; once by default. */
  tries?: number
}

/** A process that answers one question after the other, so that each has its own time. */
interface Helper {
  /** The module that answers, then its arguments. */
  args: readonly ['history' | 'release', ...string[]]
  process?: ChildProcess | undefined
  /** Takes an answer, or nothing if the process ends before. */
  take?: (told?: Told) => void
  idle?: NodeJS.Timeout
}

const NOBODY_WAITS = 'nobody waits for it'

function start(helper: Helper): ChildProcess {
  const [module, ...args] = helper.args
  const path = join(import.meta.dirname, `${module}-questions${extname(import.meta.filename)}`)
  // With it a process starts in half the time.
  const cache = getCompileCacheDir()
  const process = fork(path, args, {
    serialization: 'advanced',
    // It needs no secrets.
    env: {TMPDIR: tmpdir(), ...(cache !== undefined && {NODE_COMPILE_CACHE: dirname(cache)})},
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  process.on('message', (told: Told) => helper.process === process && helper.take?.(told))
  process.on('exit', () => end(helper, process))
  process.on('error', () => end(helper, process))
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
 * Creates processes that answer what pages ask; each starts when it is needed, the one that answered last is asked first. Disposing what
 * is returned ends them.
 *
 * @typeParam Asked the functions of the module that their processes load
 * @param args of each
 * @param stopped the code of the error when no answer comes, and its words before the reason
 */
function createHelpers<Asked extends Record<string, (...about: never[]) => unknown>>(
  args: readonly Helper['args'][],
  [code, words]: readonly [ErrorCode, string],
  times: Times,
) {
  const stop = (reason: string) => newError(code, `${words}: ${reason}.`)
  const helpers = args.map((each): Helper => ({args: each}))
  const free = [...helpers]
  const inTurn = pLimit(helpers.length)
  let isClosed = false

  async function askOf(
    helper: Helper,
    question: object,
    signal?: AbortSignal,
    tries = times.tries ?? 1,
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
    const timer = setTimeout(giveUp, times.timeoutMs, 'it took too long')
    signal?.addEventListener('abort', onAbort, {once: true})
    helper.take = resolve
    helper.process ??= start(helper)
    const process = helper.process
    process.send(question, (error) => error && end(helper, process))
    const told = await promise.finally(() => {
      signal?.removeEventListener('abort', onAbort)
      clearTimeout(timer)
      helper.idle = setTimeout(end, times.idleMs, helper).unref()
    })
    if (told === undefined && tries > 1) return await askOf(helper, question, signal, tries - 1)
    if (told === undefined) throw stop('its process ended')
    if ('answer' in told) return told.answer
    if (told.isLast) end(helper)
    throw retellError(told.failure)
  }

  return {
    /**
     * Asks a process that is free, in turn. If the answer takes too long, or `signal` says that nobody waits for it, the process is
     * killed; the next question starts another.
     *
     * @throws what the function threw; the error of `stopped` where there is no answer
     */
    ask: <Name extends string & keyof Asked>(
      name: Name,
      about: Parameters<Asked[Name]>,
      signal?: AbortSignal,
    ) =>
      inTurn(async () => {
        const helper = free.pop()
        if (!helper) throw new Error('more turns than helpers')
        return await askOf(helper, {name, about}, signal).finally(() => free.push(helper))
      }) as Promise<Awaited<ReturnType<Asked[Name]>>>,
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
    .flatMap((name) => tryRelease(join(releases, name)) ?? [])
    .sort((a, b) => (order(a) < order(b) ? 1 : -1))
}

/** One that cannot be read, or is removed meanwhile, must not take pages of the others with it; `verify` names it. */
function tryRelease(dir: string): Release | undefined {
  try {
    return readRelease(dir)
  } catch (error) {
    if (['RELEASE_MANIFEST', 'ENOENT'].includes(codeOf(error))) return undefined
    throw error
  }
}

/** The release of a business date as known at an instant, or at the end of a day; the current one by default. */
function findRelease(folder: DataFolder, {values}: Pick<Filter, 'values'>): Release | undefined {
  const [asOf] = values.get('as_of') ?? []
  const [knownAt] = values.get('known_at') ?? []
  if (asOf === undefined && knownAt === undefined) return findCurrentRelease(folder)
  return listReleases(folder.releases).find(
    ({manifest}) =>
      (asOf === undefined || manifest.as_of === asOf) &&
      (knownAt === undefined || manifest.known_at.slice(0, knownAt.length) <= knownAt),
  )
}

/** Queries whose rows are objects, from those that answer in columns and rows. */
export function queriesOf(ask: (asked: Asked) => Promise<Block>): Queries {
  const all: Queries['all'] = async (row, sql, params) =>
    objectsOf(await ask({sql, params})).map((values) => row.parse(values))
  return {
    all,
    first: async (row, sql, params) => (await all(row, sql, params))[0],
    one: async (row, sql, params) => row.parse(objectsOf(await ask({sql, params}))[0]),
  }
}

/** The limits of answers. */
interface Limits extends Times, ReleaseLimits {
  /** How many questions are answered at once; 1 by default. */
  processes?: number
}

/** Reads one release in separate processes; disposing it ends them. */
export type Reader = ReturnType<typeof createReader>

/**
 * Starts to read a release. A question that is not answered in time, or kills its process, fails alone: the next one starts
 * another process.
 *
 * @param dir of the release
 */
export function createReader(dir: string, limits: Limits) {
  const files = makeTemporaryFolder('loantape-reader-')
  const filesDir = files.path
  const {processes = 1} = limits
  const args = Array.from({length: processes}, (_, index) => {
    const spillDir = join(filesDir, `spill${index}`)
    const reading: ReleaseReading = {...limits, dir, filesDir, spillDir}
    return ['release', JSON.stringify(reading)] as const
  })
  const helpers = createHelpers<typeof questions>(args, ['QUERY_STOPPED', 'Query stopped'], limits)
  let [asking, endedAt] = [0, performance.now()]
  const noted = async <T>(answer: Promise<T>): Promise<T> => {
    asking += 1
    try {
      return await answer
    } finally {
      asking -= 1
      endedAt = performance.now()
    }
  }
  return {
    /** Nobody has asked for a while. */
    isIdle: () => asking === 0 && performance.now() - endedAt > PAGE_GAP_MS,
    /** The folder of requested files. */
    filesDir,
    /** Asks a question of our own. */
    page: (asked: Asked) => noted(helpers.ask('page', [asked])),
    /** Asks a person's question; `signal` ends it, or its waiting, once nobody wants the answer any more. */
    ask: (asked: Asked, signal?: AbortSignal) => noted(helpers.ask('person', [asked], signal)),
    [Symbol.dispose]() {
      helpers[Symbol.dispose]()
      files[Symbol.dispose]()
    },
  }
}

/** How many questions of people, and how many downloads, run at once. */
export const RUNNING = 2

const IDLE_MS = 300_000

/** A page asks its next question within this time. */
const PAGE_GAP_MS = 2_000

/** Most releases that are read at once: the current one and earlier ones. */
const OPEN_RELEASES = 3

/** Creates what finds the readers of a release, and opens and closes them; disposing it ends their processes. */
export function createReaders(folder: DataFolder, config: Config) {
  const opened = new Map<string, ReturnType<typeof openReaders>>()
  return {
    /** The readers of the release that an address asks for; the least recently used of those that nobody asks are closed. */
    find(filter: Filter) {
      const release = findRelease(folder, filter)
      if (!release) return undefined
      const id = release.manifest.release_id
      const readers = opened.get(id) ?? openReaders(release, config)
      opened.delete(id)
      opened.set(id, readers)
      for (const [oldest, old] of [...opened].slice(0, -OPEN_RELEASES)) {
        if (![old.pages, old.people, old.downloads].every((reader) => reader.isIdle())) continue
        old[Symbol.dispose]()
        opened.delete(oldest)
      }
      return readers
    },
    [Symbol.dispose]() {
      for (const readers of opened.values()) readers[Symbol.dispose]()
    },
  }
}

/** The readers of a release: of pages, of people's own questions, which may take their time, and of downloads. */
function openReaders(release: Release, config: Config) {
  const create = (limits: Omit<Limits, 'idleMs'>) => {
    const memoryMb = Math.min(limits.memoryMb, config.memoryMb ?? limits.memoryMb)
    return createReader(release.dir, {...limits, memoryMb, idleMs: IDLE_MS})
  }
  const readers = {
    pages: create({memoryMb: 1024, timeoutMs: config.pageTimeoutSeconds * 1000}),
    people: create({
      memoryMb: 512,
      timeoutMs: config.questionTimeoutSeconds * 1000,
      processes: RUNNING,
    }),
    downloads: create({
      memoryMb: 512,
      // A worksheet of a million rows takes many minutes, and others download meanwhile.
      timeoutMs: 3_600_000,
      processes: RUNNING,
      // More than a million rows of any table, and no more than a small disk has.
      fileBytes: 2e9,
      folderBytes: 4e9,
    }),
  }
  return {
    release,
    ...readers,
    [Symbol.dispose]() {
      for (const reader of Object.values(readers)) reader[Symbol.dispose]()
    },
  }
}

type OfHistory = typeof ofHistory

/** Answers questions about history, tapes and journals. */
export interface History {
  /**
   * Asks once.
   *
   * @throws what went wrong; DeferredError `HISTORY_STOPPED`
   */
  ask<Name extends keyof OfHistory>(
    name: Name,
    ...about: Parameters<OfHistory[Name]> extends [Config, ...infer Rest] ? Rest : never
  ): Promise<Awaited<ReturnType<OfHistory[Name]>>>
}

/** How many questions about history are answered at once. */
export const READING = 4

/** Answers for all pages, in processes that start when they are needed; disposing ends them. */
export function readHistory(config: Config): History & Disposable {
  const args = Array.from({length: READING}, () => ['history'] as const)
  const times = {timeoutMs: config.historyTimeoutSeconds * 1000, idleMs: IDLE_MS, tries: 2}
  const stopped = ['HISTORY_STOPPED', 'The history was not read to the end'] as const
  const helpers = createHelpers<OfHistory>(args, stopped, times)
  return {
    ask: (name, ...about) =>
      helpers.ask(name, [config, ...about] as unknown as Parameters<OfHistory[typeof name]>),
    [Symbol.dispose]: () => helpers[Symbol.dispose](),
  }
}
