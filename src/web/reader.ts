import {type ChildProcess, fork} from 'node:child_process'
import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {extname, join} from 'node:path'
import type {DuckDBValue, Json} from '@duckdb/node-api'
import pLimit from 'p-limit'
import {newError} from '../errors.ts'
import type {Queries} from '../warehouse/database.ts'

/** A question about a release. */
export interface Asked {
  /** One SELECT. */
  sql: string
  params?: DuckDBValue[] | undefined
  /** SQL over `core.deal`: the tables are those of these deals; by default of all. */
  condition?: string | undefined
  /** Rows beyond are left out. */
  most?: number | undefined
  /** Write the rows into this file instead, in a format of COPY, or as the sheet of a workbook. */
  file?: {name: string; format: string} | {name: string; sheet: string} | undefined
}

/** Its answer; values are exact text where a number could not hold them. */
export type Told = Rows | {error: string}

/** Columns and rows, in order. */
export interface Rows {
  columns: {name: string; type: string}[]
  rows: Json[][]
}

/** Reads one release in a process of its own; disposing it ends the process. */
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
}

interface Waiting {
  resolve: (rows: Rows) => void
  reject: (error: Error) => void
}

/**
 * Starts to read a release. A question that is not answered in time, or kills the process, fails alone: the next one starts
 * another process.
 *
 * @param dir of the release
 */
export function createReader(dir: string, limits: Limits): Reader {
  const filesDir = mkdtempSync(join(tmpdir(), 'loantape-reader-'))
  const entry = join(import.meta.dirname, `reader-process${extname(import.meta.filename)}`)
  let child: ChildProcess | undefined
  let isClosed = false
  let waiting = new Map<number, Waiting>()
  let lastId = 0
  /** A process that nobody has asked for long is ended: it holds memory. */
  let idle: NodeJS.Timeout | undefined
  /** Questions are answered one after the other, so that each has its own time. */
  const oneByOne = pLimit(1)

  function start(): ChildProcess {
    // What a process left that was stopped.
    rmSync(join(filesDir, 'spill'), {recursive: true, force: true})
    const started = fork(entry, [dir, filesDir, String(limits.memoryMb)], {
      serialization: 'advanced',
      // It needs none of what may be secret.
      env: {},
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    })
    const asked = new Map<number, Waiting>()
    waiting = asked
    started.on('message', ({id, ...told}: Told & {id: number}) => {
      const one = asked.get(id)
      asked.delete(id)
      if ('error' in told) one?.reject(newError('QUERY_FAILED', `Query refused: ${told.error}`))
      else one?.resolve(told)
    })
    started.once('exit', (_code, signal) => {
      if (child === started) child = undefined
      const reason = signal === 'SIGKILL' ? 'it took too long' : 'its process ended'
      for (const one of asked.values()) one.reject(newError('QUERY_STOPPED', `Query stopped: ${reason}.`))
    })
    return started
  }

  function end(ended: ChildProcess): void {
    if (child === ended) child = undefined
    ended.kill('SIGKILL')
  }

  async function ask(asked: Asked): Promise<Rows> {
    if (isClosed) throw newError('QUERY_STOPPED', 'Query stopped: there is a newer release.')
    child ??= start()
    const asking = child
    clearTimeout(idle)
    lastId += 1
    const id = lastId
    const timer = setTimeout(end, limits.timeoutMs, asking)
    try {
      return await new Promise<Rows>((resolve, reject) => {
        waiting.set(id, {resolve, reject})
        asking.send({id, ...asked}, (error) => error && reject(error))
      })
    } finally {
      clearTimeout(timer)
      idle = setTimeout(end, limits.idleMs, asking).unref()
    }
  }

  const inTurn = (asked: Asked) => oneByOne(() => ask(asked))
  return {
    filesDir,
    ask: inTurn,
    tablesOf(condition) {
      const read = async (sql: string, params?: DuckDBValue[]) => {
        const {columns, rows} = await inTurn({sql, params, condition})
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
      isClosed = true
      clearTimeout(idle)
      if (child) end(child)
      rmSync(filesDir, {recursive: true, force: true})
    },
  }
}
