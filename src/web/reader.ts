import {type ChildProcess, fork} from 'node:child_process'
import {randomBytes} from 'node:crypto'
import {existsSync, mkdirSync, readdirSync, rmSync} from 'node:fs'
import {getCompileCacheDir} from 'node:module'
import {tmpdir} from 'node:os'
import {dirname, extname, join} from 'node:path'
import type {DuckDBValue} from '@duckdb/node-api'
import pLimit from 'p-limit'
import type {Config} from '../core/config.ts'
import {codeOf, type ErrorCode, type Failure, newError, retellError} from '../core/errors.ts'
import {isAbandoned, WRITER_MARK} from '../core/process.ts'
import type {DataFolder} from '../store/data-folder.ts'
import type {Queries} from '../store/database.ts'
import {findCurrentRelease, type Release, readRelease} from '../store/release.ts'
import {type Block, objectsOf} from './blocks.ts'
import type {Filter} from './filter.ts'
import type {questions as ofHistory} from './history-questions.ts'
import type {Asked, OwnQuestion, questions, ReleaseReading, Rows} from './release-questions.ts'

/** The questions of a helper: functions of a module that its process loads. */
type Questions = Record<string, (...about: never[]) => unknown>

/** A process of its own that answers what pages ask; disposing it ends it. */
interface Helper<Asked extends Questions> extends Disposable {
  /**
   * Asks once. If the answer takes too long, or nobody waits for it, the process is killed; the next question starts another.
   *
   * @throws what the function threw; the error of `stopped` where there is no answer
   */
  ask<Name extends string & keyof Asked>(
    name: Name,
    about: Parameters<Asked[Name]>,
    limits: AskLimits,
  ): Promise<Awaited<ReturnType<Asked[Name]>>>
}

/** When to give up an answer. */
interface AskLimits {
  timeoutMs: number
  /** Aborts when nobody waits for the answer. */
  signal?: AbortSignal | undefined
  /** How often to ask if the process ends before it answers; once by default. */
  tries?: number
}

/** The properties of a helper. */
interface HelperOptions {
  /** The module it loads, then that module's arguments. */
  args: readonly ['history' | 'release', ...string[]]
  /** The code of the error when no answer comes, and its words before the reason. */
  stopped: readonly [code: ErrorCode, words: string]
  /** An idle process is ended after this time, to free its memory. */
  idleMs?: number
}

/** What a helper sends back. */
export type Told = {id: number} & ({answer: unknown} | {failure: Failure; isLast: boolean})

interface Running {
  process: ChildProcess
  /** Takes an answer, or nothing once the process has ended. */
  waiting: Map<number, (told?: Told) => void>
}

const ENTRY = join(import.meta.dirname, `helper-process${extname(import.meta.filename)}`)
const NOBODY_WAITS = 'nobody waits for it'

/** The compile cache, with which a process starts in half the time. */
function shareCompiled(): {NODE_COMPILE_CACHE?: string} {
  const dir = getCompileCacheDir()
  return dir === undefined ? {} : {NODE_COMPILE_CACHE: dirname(dir)}
}

/** Creates a helper; its process starts when it is asked. */
function createHelper<Asked extends Questions>(options: HelperOptions): Helper<Asked> {
  const {args, stopped, idleMs} = options
  const stop = (reason: string) => newError(stopped[0], `${stopped[1]}: ${reason}.`)
  let isClosed = false
  let lastId = 0
  let idle: NodeJS.Timeout | undefined
  let running: Running | undefined

  function start(): Running {
    const process = fork(ENTRY, args, {
      serialization: 'advanced',
      // It needs no secrets.
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
    const {timeoutMs, signal, tries = 1} = limits
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
    const timer = setTimeout(giveUp, timeoutMs, 'it took too long')
    signal?.addEventListener('abort', onAbort, {once: true})
    asked.waiting.set(id, resolve)
    asked.process.send({id, ...question}, (error) => error && end(asked))
    const told = await promise.finally(() => {
      asked.waiting.delete(id)
      signal?.removeEventListener('abort', onAbort)
      clearTimeout(timer)
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

/** The kept releases, in no order. */
export function listReleases({releases}: Pick<DataFolder, 'releases'>): Release[] {
  if (!existsSync(releases)) return []
  const names = readdirSync(releases).filter((name) => !name.startsWith('.'))
  return names.flatMap((name) => readRelease(join(releases, name)) ?? [])
}

/** The release of a business date as known at an instant; the current one by default. */
function findRelease(folder: DataFolder, {values}: Pick<Filter, 'values'>): Release | undefined {
  const [asOf] = values.get('as_of') ?? []
  const [knownAt] = values.get('known_at') ?? []
  if (asOf === undefined && knownAt === undefined) return findCurrentRelease(folder)
  // An instant, or a whole day.
  const isKnown = ({manifest}: Release) =>
    knownAt === undefined || manifest.known_at.slice(0, knownAt.length) <= knownAt
  const order = ({manifest}: Release) => `${manifest.as_of} ${manifest.known_at}`
  return listReleases(folder)
    .filter((release) => (asOf === undefined || release.manifest.as_of === asOf) && isKnown(release))
    .sort((a, b) => (order(a) < order(b) ? 1 : -1))[0]
}

/** Reads one release in separate processes; disposing it ends them. */
export interface Reader extends Disposable {
  /** The folder of requested files. */
  filesDir: string
  /** Asks a person's question; `signal` ends it, or its waiting, once nobody wants the answer any more. */
  ask(asked: Asked & {signal?: AbortSignal | undefined}): Promise<Rows>
  /** Asks a question of our own. */
  page(asked: OwnQuestion): Promise<Rows>
}

/** Queries whose rows are objects, from those that answer in columns and rows. */
export function queriesOf(ask: (asked: OwnQuestion) => Promise<Block>): Queries {
  const read = async (sql: string, params?: DuckDBValue[]) => objectsOf(await ask({sql, params}))
  return {
    all: async (row, sql, params) => (await read(sql, params)).map((values) => row.parse(values)),
    async first(row, sql, params) {
      const [values] = await read(sql, params)
      return values === undefined ? undefined : row.parse(values)
    },
    one: async (row, sql, params) => row.parse((await read(sql, params))[0]),
  }
}

/** The limits of answers, and how long an idle process is kept. */
interface Limits {
  memoryMb: number
  timeoutMs: number
  idleMs: number
  /** How many questions are answered at once; 1 by default. */
  processes?: number
  /** Bytes of a file that is asked for, and of all in the folder of files. */
  fileBytes?: number
  folderBytes?: number
}

/**
 * Starts to read a release. A question that is not answered in time, or kills its process, fails alone: the next one starts
 * another process.
 *
 * @param dir of the release
 */
export function createReader(dir: string, limits: Limits): Reader {
  const filesDir = createFilesDir()
  const count = limits.processes ?? 1
  const {memoryMb, fileBytes, folderBytes} = limits
  const startWorker = (spillDir: string) => {
    const reading: ReleaseReading = {dir, filesDir, spillDir, memoryMb, fileBytes, folderBytes}
    return createHelper<typeof questions>({
      args: ['release', JSON.stringify(reading)],
      stopped: ['QUERY_STOPPED', 'Query stopped'],
      idleMs: limits.idleMs,
    })
  }
  const free = Array.from({length: count}, (_, index) => startWorker(join(filesDir, `spill${index}`)))
  const workers = [...free]
  /** A process answers one question after the other, so that each has its own time. */
  const inTurn = pLimit(count)
  const withWorker = (work: (worker: Helper<typeof questions>) => Promise<Rows>) =>
    inTurn(async () => {
      const worker = free.pop()
      if (!worker) throw new Error('more turns than processes')
      try {
        return await work(worker)
      } finally {
        free.push(worker)
      }
    })
  const page: Reader['page'] = (asked) =>
    withWorker((worker) => worker.ask('page', [asked], {timeoutMs: limits.timeoutMs}))
  return {
    filesDir,
    page,
    ask: ({signal, ...asked}) =>
      withWorker((worker) => worker.ask('person', [asked], {timeoutMs: limits.timeoutMs, signal})),
    [Symbol.dispose]() {
      for (const worker of workers) worker[Symbol.dispose]()
      rmSync(filesDir, {recursive: true, force: true})
    },
  }
}

const FILES_PREFIX = 'loantape-reader-'
const OWN_FILES = `${FILES_PREFIX}${randomBytes(6).toString('hex')}-`

/** Creates a folder for files, and removes those of servers that were killed together with their helpers. */
function createFilesDir(): string {
  const names = readdirSync(tmpdir()).filter((name) => name.startsWith(FILES_PREFIX))
  for (const name of names.filter((one) => !one.startsWith(OWN_FILES) && isAbandoned(join(tmpdir(), one)))) {
    try {
      rmSync(join(tmpdir(), name), {recursive: true, force: true})
    } catch (error) {
      // Another user's.
      if (!['EACCES', 'EPERM'].includes(codeOf(error))) throw error
    }
  }
  const dir = join(tmpdir(), `${OWN_FILES}${randomBytes(6).toString('hex')}${WRITER_MARK}`)
  mkdirSync(dir, {mode: 0o700})
  return dir
}

/** Pages read what loantape asks; people's own questions go to processes of their own, which may take their time. */
const IDLE_MS = 300_000
const PAGE_LIMITS = {memoryMb: 1024, idleMs: IDLE_MS}

/** How many questions of people, and how many downloads, run at once. */
export const RUNNING = 2

const PEOPLE_LIMITS = {memoryMb: 512, idleMs: IDLE_MS, processes: RUNNING}

/** The limits of downloads: a worksheet of a million rows takes many minutes, and others download meanwhile. */
const DOWNLOAD_LIMITS = {
  memoryMb: 512,
  timeoutMs: 3_600_000,
  idleMs: IDLE_MS,
  processes: RUNNING,
  // More than a million rows of any table, and no more than a small disk has.
  fileBytes: 2e9,
  folderBytes: 4e9,
}

/** The readers of a release. */
interface Readers extends Disposable {
  release: Release
  pages: Reader
  people: Reader
  downloads: Reader
}

/** Most releases that are read at once: the current one and earlier ones. */
const OPEN_RELEASES = 3

/** Creates what finds the readers of a release, and opens and closes them; disposing it ends their processes. */
export function createReaders(folder: DataFolder, config: Config) {
  const opened = new Map<string, Readers>()
  return {
    /** The readers of the release that an address asks for; the least recently used are closed. */
    find(filter: Filter): Readers | undefined {
      const release = findRelease(folder, filter)
      if (!release) return undefined
      const id = release.manifest.release_id
      const readers = opened.get(id) ?? openReaders(release, config)
      opened.delete(id)
      opened.set(id, readers)
      for (const [oldest, old] of [...opened].slice(0, -OPEN_RELEASES)) {
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

function openReaders(release: Release, config: Config): Readers {
  const create = (limits: Limits) =>
    createReader(release.dir, {
      ...limits,
      memoryMb: Math.min(limits.memoryMb, config.memoryMb ?? limits.memoryMb),
    })
  const readers = {
    pages: create({...PAGE_LIMITS, timeoutMs: config.pageTimeoutSeconds * 1000}),
    people: create({...PEOPLE_LIMITS, timeoutMs: config.questionTimeoutSeconds * 1000}),
    downloads: create(DOWNLOAD_LIMITS),
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
    ...about: About<OfHistory[Name]>
  ): Promise<Awaited<ReturnType<OfHistory[Name]>>>
}

/** The parameters of a question besides the settings. */
type About<Question> = Question extends (config: never, ...about: infer Rest) => unknown ? Rest : never

/**
 * Answers for all pages in a process that the first question starts; disposing ends it. A question that takes too long ends it too;
 * its other questions are asked again of the next process.
 */
export function readHistory(config: Config): History & Disposable {
  const helper = createHelper<OfHistory>({
    args: ['history'],
    stopped: ['HISTORY_STOPPED', 'The history was not read to the end'],
  })
  return {
    ask: (name, ...about) =>
      helper.ask(name, [config, ...about] as unknown as Parameters<OfHistory[typeof name]>, {
        timeoutMs: config.historyTimeoutSeconds * 1000,
        tries: 2,
      }),
    [Symbol.dispose]: () => helper[Symbol.dispose](),
  }
}
