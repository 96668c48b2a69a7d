import {existsSync, mkdirSync, readdirSync, rmSync, statSync} from 'node:fs'
import {join} from 'node:path'
import type {DuckDBPreparedStatement, DuckDBValue, Json} from '@duckdb/node-api'
import {z} from 'zod'
import {closeWords, codeOf, findMachineFault, LoantapeError, messageOf, newError} from '../core/errors.ts'
import {buildLines, buildSafeRows} from '../export/csv.ts'
import type {Database} from '../store/database.ts'
import {asJson, giveBackMemory, quoteLiteral, quoteName, trimStatement} from '../store/database.ts'
import {
  findReleaseDamage,
  openForQuestions,
  type ReleaseModel,
  readRelease,
  readReleaseModels,
} from '../store/release.ts'
import {readColumns, type TableColumn} from '../store/sql.ts'
import {createDealSet, type DealSet} from './deal-set.ts'
import {isForViewers} from './filter.ts'
import {answerParent} from './helper-process.ts'
import {parseQuestion} from './question.ts'

export interface Asked {
  /** One SELECT. */
  sql: string
  /** SQL over `core.deal`: restricts all tables to these deals; all deals by default. */
  condition?: string | undefined
  /** The tables the caller may read, as in `LOANTAPE_VIEWER_TABLES`; all by default. */
  only?: string | undefined
  most?: number | undefined
  /** Parameters, by position or by name (`$month`); a missing name is null. */
  params?: DuckDBValue[] | Record<string, string | undefined> | undefined
  /** A new file for the rows; `title` is for a sheet. `isSafe` puts `'` before what a spreadsheet would take for a formula. */
  file?: {name: string; format: keyof typeof COPIES | 'xlsx'; title: string; isSafe: boolean} | undefined
}

export interface ReleaseLimits {
  memoryMb: number
  /** Most bytes of one file, and of all files in the folder. */
  fileBytes?: number
  folderBytes?: number
}

export interface ReleaseReading extends ReleaseLimits {
  filesDir: string
  spillDir: string
}

/** The least recently used is dropped. */
const KEPT_SETS = 6

/** Memory for Node and for rows in transit. */
const BESIDE_ENGINE_MB = 700

const WATCH_MS = 50

const reading: ReleaseReading = JSON.parse(process.argv[2] ?? '')
const {filesDir, spillDir, memoryMb, fileBytes = Infinity, folderBytes = Infinity} = reading
// Left by a stopped process.
rmSync(spillDir, {recursive: true, force: true})

type Instance = Awaited<ReturnType<typeof open>>

/** Questions can read only what is attached. */
async function open(dir: string, file?: string) {
  // A machine removes what is old from its temporary folder; a server runs for months.
  mkdirSync(filesDir, {recursive: true, mode: 0o700})
  try {
    const release = readRelease(dir)
    if (!release) throw new Error(`no release in '${dir}'`)
    const db = await openForQuestions(release, {memoryMb, withWork: true, spillDir, file})
    return {
      release,
      db,
      sets: new Map<string, DealSet>(),
      models: undefined as readonly ReleaseModel[] | undefined,
      [Symbol.asyncDispose]: () => db[Symbol.asyncDispose](),
    }
  } catch (cause) {
    if (existsSync(dir)) throw cause
    const problem = 'Query stopped: its release was removed meanwhile.'
    throw newError('QUERY_STOPPED', problem, {next: 'Ask again: a newer one is current.', cause})
  }
}

let made = 0

/** Points table names at the release, or at a deal set. Makes the tables that are asked for. */
async function narrow(
  instance: Instance,
  condition: string | undefined,
  isAsked: (name: string) => boolean,
): Promise<void> {
  const {release, db, sets} = instance
  if (condition === undefined) {
    await db.run(`set search_path = 'release.main,kept.work'`)
    return
  }
  made += 1
  instance.models ??= readReleaseModels(release.dir)
  const models = instance.models
  const set = sets.get(condition) ?? (await createDealSet(db, models, {catalog: `set${made}`, condition}))
  // The most recently used stands last.
  sets.delete(condition)
  sets.set(condition, set)
  for (const [oldest, {catalog}] of [...sets].slice(0, -KEPT_SETS)) {
    await db.run(`detach ${catalog}`)
    sets.delete(oldest)
  }
  await set.require(models.map(({name}) => name).filter(isAsked))
  await db.run(`set search_path = ${quoteLiteral(`${set.catalog}.main`)}`)
}

/** Copies the tables of a question and detaches everything else. */
async function keepOnly({db, sets}: Instance, isAsked: (name: string) => boolean): Promise<void> {
  const stored = await db.column(
    z.string(),
    `select schema_name || '.' || table_name from duckdb_tables() where database_name = 'release'`,
  )
  await db.run(`attach ':memory:' as allowed`)
  for (const name of stored.filter(isAsked)) {
    const [schema, table] = name.split('.').map(quoteName)
    await db.run(`create schema if not exists allowed.${schema}`)
    await db.run(`create table allowed.${schema}.${table} as from ${schema}.${table}`)
  }
  await db.run(`set search_path = 'allowed.main'`)
  const others = [...sets.values()].map(({catalog}) => catalog)
  for (const catalog of ['release', 'kept', ...others]) await db.run(`detach ${catalog}`)
}

/** Questions of our pages share an instance, which keeps deal sets. */
let shared: Instance | undefined

async function answerPage(dir: string, asked: Asked): Promise<Rows> {
  if (shared?.release.dir !== dir) {
    const former = shared
    shared = undefined
    await former?.[Symbol.asyncDispose]()
    shared = await open(dir)
  }
  await narrow(shared, asked.condition, (name) => asked.sql.includes(name))
  return await readRows(shared.db, asked)
}

/** Uses an engine instance of its own, so that no question affects others. The engine runs the checked text unchanged. */
async function answerPerson(dir: string, asked: Asked): Promise<Rows> {
  const {sql, condition, only, file} = asked
  const path = file && join(filesDir, file.name)
  await using instance = await open(dir, path)
  const {db} = instance
  const {tables, isShown} = await parseQuestion(db, sql)
  const names = new Set(tables.map((name) => name.toLowerCase()))
  const hidden = [...names].find((name) => name.includes('.') && !isForViewers(name, only))
  if (hidden !== undefined) throw new Error(`table '${hidden}' is not for viewers.`)
  const isAsked = (name: string) => names.has(name.toLowerCase())
  await narrow(instance, condition, isAsked)
  if (only !== undefined) await keepOnly(instance, isAsked)
  if (file === undefined || path === undefined) return await readRows(db, asked)
  // Prepared unchanged first, so that errors quote the given text.
  const prepared = await db.connection.prepare(sql)
  prepared.destroySync()
  if (!isShown) await db.run(`create temp view asked as ${sql}`)
  const from = isShown ? `(${trimStatement(sql)}\n)` : 'asked'
  if (file.format === 'xlsx') {
    // Loaded late: pages do not need it.
    const {writeQueryBook} = await import('../export/xlsx.ts')
    await writeQueryBook(db, {path, title: file.title, from}, instance.release.manifest)
  } else {
    const columns = await readColumns(db, `from ${from}`)
    const rows = file.isSafe
      ? buildSafeRows(columns, from)
      : file.format === 'csv'
        ? `from ${from}`
        : buildRows(columns, from, file.format)
    const lines = file.format === 'csv' ? buildLines(columns, `(${rows})`) : rows
    await db.run(`copy (${lines}) to ${quoteLiteral(path)} (${COPIES[file.format]})`)
  }
  return {columns: [], rows: []}
}

const COPIES = {
  csv: 'format csv, header',
  json: 'format json, array true',
  parquet: 'format parquet, compression zstd',
}

/** As JSON, in which `NaN` and infinity become null wherever they are but in texts. */
const buildFiniteSql = (cell: string) => String.raw`array_to_string(list_transform(
  regexp_extract_all(to_json(${cell})::varchar, '"(?:[^"\\]|\\.)*"|[^"]+'),
  lambda part: if(part[1] = '"', part, regexp_replace(part, '-?(NaN|Infinity)', 'null', 'g'))), '')::json`

/** In JSON, decimals get a digit before the point; Parquet has whole numbers of 64 bits, so larger ones become decimals. */
function buildRows(columns: readonly TableColumn[], from: string, format: 'json' | 'parquet'): string {
  const cells = columns.map(({name, type}) => {
    const quoted = quoteName(name)
    const wider =
      format === 'parquet'
        ? type.replaceAll(/\bU?HUGEINT\b/g, 'DECIMAL(38,0)')
        : type.replaceAll(/DECIMAL\((\d+),\1\)/g, (_, digits) =>
            digits === '38' ? 'DECIMAL(38,37)' : `DECIMAL(${Number(digits) + 1},${digits})`,
          )
    const cell = wider === type ? quoted : `cast(${quoted} as ${wider})`
    const isExact = format === 'parquet' || !/\b(FLOAT|DOUBLE)\b/.test(type)
    return `${isExact ? cell : buildFiniteSql(cell)} as ${quoted}`
  })
  return `select ${cells.join(', ')} from ${from}`
}

type Rows = Awaited<ReturnType<typeof readRows>>

/** Browsers cannot use a longer page. */
const MOST_CHARACTERS = 20_000_000

/** Reads at most `most`, in order. Values are exact text if a number could not hold them. */
async function readRows({connection}: Database, {sql, params, most = Number.POSITIVE_INFINITY}: Asked) {
  const prepared = await connection.prepare(sql)
  if (params) prepared.bind(Array.isArray(params) ? params : namedOf(prepared, params))
  const result = await prepared.stream().finally(() => prepared.destroySync())
  const types = result.columnTypes()
  const columns = result.deduplicatedColumnNames().map((name, index) => ({name, type: String(types[index])}))
  const rows: Json[][] = []
  let characters = 0
  for await (const chunk of result.yieldConvertedRows(asJson)) {
    for (const row of chunk.slice(0, most - rows.length)) {
      if (most !== Number.POSITIVE_INFINITY) characters += JSON.stringify(row).length
      if (characters > MOST_CHARACTERS)
        throw new Error('more than 20 MB of text: ask for fewer rows or shorter values, or download them.')
      rows.push(row)
    }
    if (rows.length >= most) break
  }
  return {columns, rows}
}

function namedOf(
  prepared: DuckDBPreparedStatement,
  params: Record<string, string | undefined>,
): Record<string, DuckDBValue> {
  const names = Array.from({length: prepared.parameterCount}, (_, index) => prepared.parameterName(index + 1))
  return Object.fromEntries(
    names.map((name) => [name, Object.hasOwn(params, name) ? (params[name] ?? null) : null]),
  )
}

/** The error in words, without paths and without advice on engine settings. */
function wordFailure(error: unknown): string {
  if (error instanceof LoantapeError) return error.problem
  const [words = ''] = messageOf(error).split('\n\nPossible solutions:')
  return words.replaceAll(`${filesDir}/`, '')
}

/** A process that exceeded a limit answers nothing more. */
let hasSpent = false

const sizeOf = (name: string) => statSync(join(filesDir, name), {throwIfNoEntry: false})?.size ?? 0

/** The engine bounds what it spills, but does not count all text towards its memory limit. */
function requireModest(file: string | undefined): void {
  const stop = (reason: string) => newError('QUERY_STOPPED', `Query stopped: ${reason}.`)
  if (process.memoryUsage.rss() >= (memoryMb + BESIDE_ENGINE_MB) * 1e6)
    throw new Error('Out of Memory: its texts take more than a query may have.')
  if (file === undefined) return
  if (sizeOf(file) > fileBytes) throw stop(`its file is larger than ${fileBytes / 1e6} MB`)
  if (readdirSync(filesDir).reduce((sum, name) => sum + sizeOf(name), 0) > folderBytes)
    throw stop(`what people download at this moment takes more than ${folderBytes / 1e6} MB`)
}

/** Errors of limits, of the release, of the machine. */
const IS_NOT_ITS_OWN = /^(QUERY_STOPPED|RELEASE_DAMAGED|DISK_FULL|DISK_FAULT|TOO_MANY_FILES)$/

async function answer(question: Promise<Rows>, file?: string): Promise<Rows> {
  const {promise: tooMuch, reject} = Promise.withResolvers<never>()
  const watch = setInterval(() => {
    try {
      requireModest(file)
    } catch (error) {
      hasSpent = true
      reject(error)
    }
  }, WATCH_MS)
  try {
    return await Promise.race([question, tooMuch])
  } catch (error) {
    // The engine's other errors quote the question, which may hold any words.
    const isOfFile = /^(IO Error|E[A-Z]+:)/.test(messageOf(error))
    const fault = isOfFile ? (findReleaseDamage(error) ?? findMachineFault(error)) : error
    if (IS_NOT_ITS_OWN.test(codeOf(fault))) throw fault
    throw newError('QUERY_FAILED', `Query refused: ${closeWords(wordFailure(error))}`)
  } finally {
    clearInterval(watch)
  }
}

export const questions = {
  page: (dir: string, asked: Asked) => answer(answerPage(dir, asked)),
  async person(dir: string, asked: Asked) {
    const rows = await answer(answerPerson(dir, asked), asked.file?.name)
    // Rows that were not read keep their instance open until garbage collection.
    if (rows.rows.length === asked.most) setImmediate(() => void giveBackMemory())
    return rows
  },
}

answerParent(questions, {
  // Removes the files written for people.
  leave: () => rmSync(filesDir, {recursive: true, force: true}),
  isSpent: () => hasSpent,
})
