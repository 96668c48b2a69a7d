import {existsSync, mkdtempSync, readdirSync, rmSync, statSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import type {DuckDBValue, Json} from '@duckdb/node-api'
import pLimit from 'p-limit'
import {closeWords, newError} from '../errors.ts'
import type {Queries} from '../warehouse/database.ts'
import {createChild} from './child.ts'

/** A person's question about a release. */
export interface Asked {
  /** One SELECT. */
  sql: string
  /** SQL over `core.deal`: the tables are those of these deals; by default of all. */
  condition?: string | undefined
  /** The tables that who asks can read, as `LOANTAPE_VIEWER_TABLES` names them; all by default. */
  only?: string | undefined
  /** Rows beyond are left out. */
  most?: number | undefined
  /**
   * Write the rows into this new file instead, in a format of COPY, or as the sheet of a workbook; safe, texts that a spreadsheet
   * would take for formulas get a `'` in front.
   */
  file?: {name: string; format: string; isSafe?: boolean} | {name: string; sheet: string} | undefined
  /** Ends the query, or its waiting, once nobody wants the answer any more. */
  signal?: AbortSignal | undefined
}

/** A question of this program itself. */
export interface OwnQuestion extends Pick<Asked, 'sql' | 'condition' | 'signal'> {
  isOwn: true
  params: DuckDBValue[] | undefined
}

/** Its answer; values are exact text where a number could not hold them. The last one of a process asks for its end. */
export type Told = Rows | {error: string; isLast?: true}

/** Columns and rows, in order. */
export interface Rows {
  columns: {name: string; type: string}[]
  rows: Json[][]
}

/** Reads one release in processes of its own; disposing it ends them. */
export interface Reader extends Disposable {
  /** Where files are written that were asked for. */
  filesDir: string
  ask(asked: Asked): Promise<Rows>
  /** The tables of some deals, by default of all. */
  tablesOf(condition?: string): Queries
}

/** How much memory an answer may take, how long it may, and how long a process waits for the next question. */
export interface Limits {
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
  const free = Array.from({length: count}, (_, index) =>
    createWorker({dir, filesDir, spillDir: join(filesDir, `spill${index}`)}, limits),
  )
  const workers = [...free]
  /** A process answers one question after the other, so that each has its own time. */
  const inTurn = pLimit(count)
  const ask = (asked: Asked | OwnQuestion) =>
    inTurn(async () => {
      const worker = free.pop()
      if (!worker) throw new Error('more turns than processes')
      try {
        return await worker.ask(asked)
      } finally {
        free.push(worker)
      }
    })
  return {
    filesDir,
    ask,
    tablesOf(condition) {
      const read = async (sql: string, params?: DuckDBValue[]) => {
        const {columns, rows} = await ask({isOwn: true, sql, params, condition})
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

/** One process, started when it is asked. */
interface Worker extends Disposable {
  ask(asked: Asked | OwnQuestion): Promise<Rows>
}

function createWorker(
  {dir, filesDir, spillDir}: {dir: string; filesDir: string; spillDir: string},
  limits: Limits,
): Worker {
  const child = createChild<Told>('reader-process', {
    args: [dir, filesDir, spillDir, String(limits.memoryMb)],
    stopped: (reason) => newError('QUERY_STOPPED', `Query stopped: ${reason}.`),
    idleMs: limits.idleMs,
    // What a process left that was stopped.
    beforeStart: () => rmSync(spillDir, {recursive: true, force: true}),
  })
  return {
    async ask({signal, ...asked}) {
      const {name} = ('file' in asked && asked.file) || {}
      const findReason = name === undefined ? undefined : () => findTooLarge(filesDir, name, limits)
      const told = await child.ask(asked, {timeoutMs: limits.timeoutMs, signal, findReason})
      if ('isLast' in told) child.end()
      if ('error' in told) throw newError('QUERY_FAILED', `Query refused: ${closeWords(told.error)}`)
      return told
    },
    [Symbol.dispose]: () => child[Symbol.dispose](),
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
