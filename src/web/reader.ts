import {existsSync, mkdtempSync, readdirSync, rmSync, statSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import type {DuckDBValue} from '@duckdb/node-api'
import pLimit from 'p-limit'
import type {Config} from '../config.ts'
import type {Release} from '../release/manifest.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import type {Queries} from '../warehouse/database.ts'
import type {Filter} from './filter.ts'
import {findRelease} from './find-release.ts'
import {createHelper, type Helper} from './helper.ts'
import type {Asked, questions, Rows} from './release-questions.ts'

/** Reads one release in processes of its own; disposing it ends them. */
export interface Reader extends Disposable {
  /** Where files are written that were asked for. */
  filesDir: string
  /** Asks a person's question; `signal` ends it, or its waiting, once nobody wants the answer any more. */
  ask(asked: Asked & {signal?: AbortSignal | undefined}): Promise<Rows>
  /** The tables of some deals, by default of all. */
  tablesOf(condition?: string): Queries
}

/** How much memory an answer may take, how long it may, and how long a process waits for the next question. */
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
  const filesDir = mkdtempSync(join(tmpdir(), 'loantape-reader-'))
  const count = limits.processes ?? 1
  const startWorker = (spillDir: string) =>
    createHelper<typeof questions>({
      args: ['release', dir, filesDir, spillDir, String(limits.memoryMb)],
      stopped: ['QUERY_STOPPED', 'Query stopped'],
      idleMs: limits.idleMs,
      // What a process left that was stopped.
      beforeStart: () => rmSync(spillDir, {recursive: true, force: true}),
    })
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
  return {
    filesDir,
    ask({signal, ...asked}) {
      const {name} = asked.file ?? {}
      const findReason = name === undefined ? undefined : () => findTooLarge(filesDir, name, limits)
      return withWorker((worker) =>
        worker.ask('person', [asked], {timeoutMs: limits.timeoutMs, signal, findReason}),
      )
    },
    tablesOf(condition) {
      const read = async (sql: string, params?: DuckDBValue[]) => {
        const asked = {sql, params, condition}
        const {columns, rows} = await withWorker((worker) =>
          worker.ask('page', [asked], {timeoutMs: limits.timeoutMs}),
        )
        return rows.map((values) => Object.fromEntries(columns.map(({name}, index) => [name, values[index]])))
      }
      return {
        all: async (row, sql, params) => (await read(sql, params)).map((values) => row.parse(values)),
        async first(row, sql, params) {
          const [values] = await read(sql, params)
          return values === undefined ? undefined : row.parse(values)
        },
        one: async (row, sql, params) => row.parse((await read(sql, params))[0]),
      }
    },
    [Symbol.dispose]() {
      for (const worker of workers) worker[Symbol.dispose]()
      rmSync(filesDir, {recursive: true, force: true})
    },
  }
}

/** Why what is being written is too large, in words. */
function findTooLarge(dir: string, name: string, limits: Limits): string | undefined {
  const {fileBytes = Number.POSITIVE_INFINITY, folderBytes = Number.POSITIVE_INFINITY} = limits
  const sizeOf = (path: string) => statSync(path, {throwIfNoEntry: false})?.size ?? 0
  if (sizeOf(join(dir, name)) > fileBytes) return `its file is larger than ${fileBytes / 1e6} MB`
  // What queries spill is bounded by the engine.
  const files = existsSync(dir) ? readdirSync(dir) : []
  if (files.reduce((sum, file) => sum + sizeOf(join(dir, file)), 0) > folderBytes)
    return `what people download at this moment takes more than ${folderBytes / 1e6} MB`
  return undefined
}

/** Pages read what loantape asks; people's own questions go to a process of their own, which may take its time. */
const IDLE_MS = 300_000
const PAGE_LIMITS = {memoryMb: 1024, timeoutMs: 15_000, idleMs: IDLE_MS}
const PEOPLE_LIMITS = {memoryMb: 512, timeoutMs: 30_000, idleMs: IDLE_MS}

/** A worksheet of a million rows takes many minutes, and beside it others download. */
const DOWNLOAD_LIMITS = {
  memoryMb: 512,
  timeoutMs: 3_600_000,
  idleMs: IDLE_MS,
  processes: 2,
  // More than a million rows of any table, and no more than a small disk has.
  fileBytes: 2e9,
  folderBytes: 4e9,
}

/** The readers of a release. */
export interface Readers extends Disposable {
  release: Release
  pages: Reader
  people: Reader
  downloads: Reader
}

/** Releases that are read at once: the current one, and those that somebody looks back at. */
const OPEN_RELEASES = 3

/** Creates what finds the readers of a release, and opens and closes them; disposing it ends their processes. */
export function createReaders(folder: DataFolder, config: Config) {
  const opened = new Map<string, Readers>()
  return {
    /** Those of the release that an address asks for; what was not asked for longest is closed. */
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
  const timeoutMs = Math.min(PEOPLE_LIMITS.timeoutMs, config.modelTimeoutSeconds * 1000)
  const readers = {
    pages: create(PAGE_LIMITS),
    people: create({...PEOPLE_LIMITS, timeoutMs}),
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
