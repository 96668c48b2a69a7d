import {addAbortListener} from 'node:events'
import {closeSync, openSync, readSync, statSync} from 'node:fs'
import {availableParallelism, totalmem} from 'node:os'
import {setImmediate as nextTurn} from 'node:timers/promises'
import {setFlagsFromString} from 'node:v8'
import {runInNewContext} from 'node:vm'
import type {DuckDBConnection, DuckDBValue, DuckDBValueConverter, Json} from '@duckdb/node-api'
import {DuckDBDateValue, DuckDBInstance, DuckDBTypeId, JsonDuckDBValueConverter} from '@duckdb/node-api'
import reading from '@duckdb/node-api/lib/vectors/dataAccessors.js'
import pLimit from 'p-limit'
import type {z} from 'zod'
import {messageOf, newError} from '../core/errors.ts'

// Its own decoder drops a byte order mark at the start of a text: the id `\ufeffa` would be read as `a`.
Object.assign(reading, {textDecoder: new TextDecoder('utf-8', {ignoreBOM: true})})

interface DatabaseOptions {
  attach?: readonly {path: string; alias: string; readOnly?: boolean}[]
  /** By default, a number that fits the size of the attached files. */
  threads?: number
  lanes?: number
  /** Promises to change nothing that outlives a connection: then the next reader gets this engine. */
  isReader?: boolean
}

type Params = DuckDBValue[] | undefined

/** BIGINT, HUGEINT and DECIMAL arrive as exact decimal text, DATE as `YYYY-MM-DD`, TIMESTAMP as `YYYY-MM-DD HH:MM:SS[.ssssss]`. */
export type Queries = ReturnType<typeof queriesOver>

export function queriesOver(read: (sql: string, params: Params) => Promise<Record<string, unknown>[]>) {
  return {
    async all<T>(row: z.ZodType<T>, sql: string, params?: Params): Promise<T[]> {
      return (await read(sql, params)).map((values) => row.parse(values))
    },
    async first<T>(row: z.ZodType<T>, sql: string, params?: Params): Promise<T | undefined> {
      const [values] = await read(sql, params)
      return values && row.parse(values)
    },
    /** Of a query that always has a row. */
    async one<T>(row: z.ZodType<T>, sql: string, params?: Params): Promise<T> {
      return row.parse((await read(sql, params))[0])
    },
    async column<T>(value: z.ZodType<T>, sql: string, params?: Params): Promise<T[]> {
      return (await read(sql, params)).map((values) => value.parse(Object.values(values)[0]))
    },
    /** Of a query that always has one row. */
    async value<T>(value: z.ZodType<T>, sql: string, params?: Params): Promise<T> {
      return value.parse(Object.values((await read(sql, params))[0] ?? {})[0])
    },
  }
}

/** A value as {@link Queries} returns it. The library's own JSON has an infinite date as the day `5881580-07-11`, an interval in parts. */
export const asJson: DuckDBValueConverter<Json> = (value, type, converter) => {
  if (value instanceof DuckDBDateValue && Math.abs(value.days) === DuckDBDateValue.PosInf.days)
    return value.days > 0 ? 'infinity' : '-infinity'
  if (type.typeId === DuckDBTypeId.INTERVAL && value !== null) return String(value)
  return JsonDuckDBValueConverter(value, type, converter)
}

/** An in-memory DuckDB with files attached. */
export interface Database extends Queries, AsyncDisposable {
  readonly connection: DuckDBConnection
  /** All connections, this one first; their statements run in parallel. */
  readonly lanes: readonly Database[]
  /** Runs one or more statements; only the last may have parameters. */
  run(sql: string, params?: Params): Promise<void>
  /** A few thousand rows at a time, never all in memory; values as {@link Queries} returns them. */
  stream(sql: string): AsyncGenerator<Json[][]>
}

export function quoteLiteral(text: string): string {
  return `'${text.replaceAll("'", "''")}'`
}

export function quoteName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

/** `core.deal` of catalog `release`. */
export function quoteTable(catalog: string, table: string): string {
  return [catalog, ...table.split('.').map(quoteName)].join('.')
}

/** Stored bytes per thread; with fewer, threads only obstruct each other. */
const THREAD_BYTES = 4_000_000

export function threadsFor(bytes: number): number {
  return Math.min(availableParallelism(), Math.max(1, Math.floor(bytes / THREAD_BYTES)))
}

interface Engine {
  instance: DuckDBInstance
  /** A statement failed. */
  failed: boolean
}

/** The last reader's, without its files. Starting an engine takes as long as twenty small statements. */
let idle: Engine | undefined

const startEngine = async (): Promise<Engine> => ({
  instance: await DuckDBInstance.create(':memory:', ENGINE),
  failed: false,
})

async function takeEngine(): Promise<Engine> {
  const engine = idle ?? (await startEngine())
  idle = undefined
  return engine
}

async function giveBack(engine: Engine, attached: readonly {alias: string}[]): Promise<void> {
  if (!engine.failed) {
    const connection = await engine.instance.connect()
    for (const {alias} of attached) await connection.run(`detach ${alias}`)
    connection.closeSync()
  }
  if (engine.failed || idle) engine.instance.closeSync()
  else idle = engine
}

/** Files are attached because the engine replays only their write-ahead logs reliably. The session time zone is UTC. */
export async function openDatabase(options: DatabaseOptions = {}): Promise<Database> {
  const {attach = [], isReader = false} = options
  const bytes = attach.map(({path}) => statSync(path, {throwIfNoEntry: false})?.size ?? 0)
  const threads = options.threads ?? threadsFor(bytes.reduce((sum, size) => sum + size, 0))
  const engine = await (isReader ? takeEngine() : startEngine())
  const lanes: Database[] = []
  const close = async () => {
    for (const lane of lanes) await lane[Symbol.asyncDispose]()
    if (isReader) await giveBack(engine, attach)
    else engine.instance.closeSync()
  }
  try {
    for (let lane = 0; lane < (options.lanes ?? 1); lane += 1) {
      lanes.push(createLane(engine, await engine.instance.connect(), lanes))
    }
    const [first] = lanes as [Database]
    await first.run(`set threads = ${threads}`)
    for (const {path, alias, readOnly} of attach) {
      await first.run(`attach ${quoteLiteral(path)} as ${alias}${readOnly ? ' (read_only)' : ''}`)
    }
    for (const lane of lanes) await lane.run(`set TimeZone = 'UTC'`)
    return {...first, [Symbol.asyncDispose]: close}
  } catch (error) {
    await close()
    throw error
  }
}

const ENGINE = {
  threads: '1',
  autoinstall_known_extensions: 'false',
  autoload_known_extensions: 'false',
  // A table takes at least one block. With the engine's default of 262,144 bytes, a small lender's files would be mostly empty.
  default_block_size: '65536',
}

/** @throws UnexpectedError `WAREHOUSE_UNREADABLE`, `RELEASE_DAMAGED` if a file is cut off or changed; otherwise the cause */
async function explainDamage(instance: DuckDBInstance, cause: unknown): Promise<never> {
  const [words = ''] = messageOf(cause).split('\n')
  const [, cut] = /read enough bytes from file "([^"]*warehouse\.duckdb)"/.exec(words) ?? []
  const file = cut ?? (await findChanged(instance, words))
  if (file === undefined) throw cause
  const problem = `File '${file}' is ${cut ? 'cut off' : 'damaged'}: ${words}.`
  if (/\/(warehouse|history)\.duckdb/.test(file)) throw newError('WAREHOUSE_UNREADABLE', problem, {cause})
  const next = 'Remove the folder of that file and run `loantape build`, which makes it again.'
  throw newError('RELEASE_DAMAGED', problem, {next, cause})
}

/**
 * Finds the attached file that holds the checksum which the engine's message names. Two releases may share a block, since one is
 * built upon the other: then both are named.
 */
async function findChanged(instance: DuckDBInstance, words: string): Promise<string | undefined> {
  const [, checksum, place] = /stored checksum (\d+) in block at location (\d+)/.exec(words) ?? []
  if (checksum === undefined) return undefined
  // Not the connection that failed: its transaction is at an end.
  const connection = await instance.connect()
  try {
    const found = await connection.runAndReadAll('select path from duckdb_databases() where path is not null')
    const paths = found.getRowsJS().map(([path]) => String(path))
    const same = paths.filter((path) => readNumber(path, Number(place)) === BigInt(checksum))
    return same.length > 0 ? same.join("' or '") : undefined
  } finally {
    connection.closeSync()
  }
}

function readNumber(path: string, at: number): bigint {
  const bytes = Buffer.alloc(8)
  const file = openSync(path, 'r')
  try {
    readSync(file, bytes, 0, bytes.length, at)
    return bytes.readBigUInt64LE()
  } finally {
    closeSync(file)
  }
}

/** Disposing it closes only this connection. */
function createLane(engine: Engine, connection: DuckDBConnection, lanes: readonly Database[]): Database {
  const explain = (cause: unknown) => {
    engine.failed = true
    return explainDamage(engine.instance, cause)
  }
  // The work that closing must wait for: closing during a statement crashes the process.
  let underWay: Promise<unknown> = Promise.resolve()
  const execute = (sql: string, params?: Params) => {
    const work = connection.run(sql, params).catch(explain)
    underWay = Promise.allSettled([underWay, work])
    return work
  }
  return {
    ...queriesOver(async (sql, params) => await (await execute(sql, params)).convertRowObjects(asJson)),
    connection,
    lanes,
    async run(sql, params) {
      await execute(sql, params)
    },
    async *stream(sql) {
      const work = connection.stream(sql)
      underWay = Promise.allSettled([underWay, work])
      try {
        yield* (await work).yieldConvertedRows(asJson)
      } catch (error) {
        await explain(error)
      }
    },
    async [Symbol.asyncDispose]() {
      await underWay
      connection.closeSync()
    },
  }
}

/** The engine would stop reading at NUL. @throws Error */
export function requireText(sql: string): void {
  if (sql.includes('\0')) throw new Error('NUL character in a statement: expected text.')
}

/** @throws Error with the engine's message */
export async function requireOneStatement(connection: DuckDBConnection, sql: string): Promise<void> {
  requireText(sql)
  const {count} = await connection.extractStatements(sql).catch((error: unknown) => {
    const words = messageOf(error).replace('Failed to extract statements: ', '')
    // The engine's answer to a text without statements.
    if (words === 'Error in native callback') return {count: 0}
    throw new Error(words, {cause: error})
  })
  if (count !== 1) throw new Error(`${count} statements: expected one.`)
}

/** Pattern of a text or name in quotes of any kind, or a comment. What nothing closes reaches to the end, so that it is read once. */
export const QUOTED: string = String.raw`(?<!\w)e'(?:\\.|''|[^'\\])*'|'[^']*'|"[^"]*"|(?<!\w)\$(\w*)\$(?:.*?\$\1\$|.*)|--[^\n]*|/\*(?:.*?\*/|.*)`
const TOKEN = new RegExp(`${QUOTED}|.`, 'gis')

/** Removes the `;` and the comments at the end of a statement, so that it can stand in parentheses. */
export function trimStatement(sql: string): string {
  const tokens = sql.match(TOKEN) ?? []
  return tokens.slice(0, tokens.findLastIndex((token) => !/^(--|\/\*|[;\s])/.test(token)) + 1).join('')
}

export async function inTransaction<T>(db: Database, work: () => Promise<T>): Promise<T> {
  await db.run('begin transaction')
  try {
    const result = await work()
    await db.run('commit')
    return result
  } catch (error) {
    // After a failed commit, the transaction is already rolled back.
    await db.run('rollback').catch((rollback: Error) => {
      if (!/no transaction is active/i.test(rollback.message)) throw rollback
    })
    throw error
  }
}

function totalMb(): number {
  return Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY) / 1e6
}

export function mostMemoryMb(): number {
  return totalMb() * 0.8
}

/** For staging and settling; the engine spills the rest to the disk. */
export function loadMemoryMb(): number {
  return Math.floor(Math.min(mostMemoryMb(), Math.max(512, totalMb() / 3)))
}

/** Frees the engine's memory of closed databases: V8 is slow to collect the small result objects that hold it. */
export async function giveBackMemory(): Promise<void> {
  setFlagsFromString('--expose-gc')
  const collect: () => void = runInNewContext('gc')
  collect()
  await nextTurn()
}

export type Cut = 'time' | 'memory' | 'stopped'

const REPEAT_MS = 20

/** Interrupts connections repeatedly until cleared, since an interrupt between two statements is lost. */
function interruptUntilCleared(list: () => readonly Pick<Database, 'connection'>[]): NodeJS.Timeout {
  const interrupt = () => {
    for (const {connection} of list()) connection.interrupt()
  }
  interrupt()
  return setInterval(interrupt, REPEAT_MS)
}

/**
 * Interrupts statements that take longer than `limitMs`, or once the process is asked to stop. `explain` makes the error of an
 * interruption; other errors are thrown unchanged.
 */
export async function withinLimits<T>(
  db: Database,
  limits: {limitMs?: number; signal: AbortSignal},
  work: () => Promise<T>,
  explain: (cut: Cut, cause: unknown) => Error,
): Promise<T> {
  const {limitMs, signal} = limits
  let cut: Cut | undefined
  let repeat: NodeJS.Timeout | undefined
  const interrupt = (reason: Cut) => {
    cut ??= reason
    repeat ??= interruptUntilCleared(() => [db])
  }
  if (signal.aborted) throw explain('stopped', signal.reason)
  const timer = limitMs === undefined ? undefined : setTimeout(() => interrupt('time'), limitMs)
  using _listening = addAbortListener(signal, () => interrupt('stopped'))
  try {
    return await work()
  } catch (error) {
    if (cut !== undefined && /interrupt/i.test(messageOf(error))) throw explain(cut, error)
    if (/^Out of Memory Error/i.test(messageOf(error))) throw explain('memory', error)
    throw error
  } finally {
    clearTimeout(timer)
    clearInterval(repeat)
  }
}

/**
 * Runs pieces of work in parallel, one at a time on each connection, each after those it waits for. `pieces` are in an order in
 * which they could run one by one, and so are the results.
 * @throws the first failure; running pieces are then interrupted, and no others start
 */
export async function inLanes<P, T>(
  {lanes}: Database,
  pieces: readonly P[],
  work: (piece: P, lane: Database) => Promise<T>,
  waitsFor: (piece: P) => readonly P[] = () => [],
): Promise<T[]> {
  const free = [...lanes]
  const inTurn = pLimit(lanes.length)
  let failure: {cause: unknown} | undefined
  let repeat: NodeJS.Timeout | undefined
  const begin = async (piece: P): Promise<T> => {
    if (failure) throw failure.cause
    const lane = free.pop()
    if (!lane) throw new Error('more is under way than there are connections')
    try {
      return await work(piece, lane)
    } catch (cause) {
      failure ??= {cause}
      repeat ??= interruptUntilCleared(() => lanes.filter((other) => other !== lane && !free.includes(other)))
      throw cause
    } finally {
      free.push(lane)
    }
  }
  const results = new Map<P, Promise<T>>()
  for (const piece of pieces) {
    const before = Promise.all(waitsFor(piece).map((other) => results.get(other)))
    results.set(
      piece,
      before.then(() => inTurn(() => begin(piece))),
    )
  }
  await Promise.allSettled(results.values())
  clearInterval(repeat)
  if (failure) throw failure.cause
  return Promise.all(results.values())
}
