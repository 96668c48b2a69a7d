import {rmSync} from 'node:fs'
import {join} from 'node:path'
import type {DuckDBValue, Json} from '@duckdb/node-api'
import {z} from 'zod'
import {closeWords, LoantapeError, messageOf, newError} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import {buildSafeRows} from '../export/csv.ts'
import {
  type Database,
  giveBackMemory,
  quoteLiteral,
  quoteName,
  requireOneStatement,
  requireText,
} from '../store/database.ts'
import {openRelease, type ReleaseModel, readRelease, readReleaseModels} from '../store/release.ts'
import type {TableColumn} from '../store/sql.ts'

/** Functions that may stand in FROM: they compute rows, or tell of the catalogue without naming files. */
const TABLE_FUNCTIONS = new Set([
  'duckdb_columns',
  'duckdb_constraints',
  'duckdb_functions',
  'duckdb_keywords',
  'duckdb_schemas',
  'duckdb_tables',
  'duckdb_types',
  'duckdb_views',
  'generate_series',
  'icu_calendar_names',
  'json_each',
  'json_tree',
  'pg_timezone_names',
  'range',
  'repeat',
  'repeat_row',
  'unnest',
])

/** Functions of values that tell of the machine, write, or plan a second statement. */
const REFUSED_FUNCTIONS = new Set(['current_setting', 'getenv', 'json_serialize_plan', 'write_log'])

/** Views of the catalogue that name files or tell settings. */
const REFUSED_VIEWS = new Set([
  'duckdb_databases',
  'duckdb_logs',
  'duckdb_settings',
  'pg_settings',
  'pragma_database_list',
])

const serialised = z.object({
  error: z.boolean(),
  error_type: z.string().optional(),
  statements: z.array(z.unknown()).optional(),
})

/** What a question reads. */
export interface Question {
  /** Tables as it names them, `core.deal`; those of its own CTEs are among them. */
  tables: string[]
  /** DESCRIBE, SHOW or SUMMARIZE. */
  isShown: boolean
}

/**
 * Reads a person's question: one SELECT (or DESCRIBE, SHOW, SUMMARIZE), which calls nothing that reaches beyond tables. It looks at the
 * tree of the engine's own parser.
 *
 * @throws Error in words for whoever asked
 */
export async function parseQuestion(db: Database, sql: string): Promise<Question> {
  requireText(sql)
  const {tree} = await db.one(
    z.object({tree: z.string()}),
    'select json_serialize_sql($1::varchar)::varchar as tree',
    [sql],
  )
  const parsed = parseJson(tree)
  if (parsed === undefined) throw new Error('a number in it is too large: expected one below 1e308.')
  const {error_type, statements = []} = serialised.parse(parsed)
  // Here the engine marks the place of an error in the text.
  if (error_type === 'parser') await requireOneStatement(db.connection, sql)
  if (error_type !== undefined) throw new Error(wordRefusal(sql))
  if (statements.length !== 1) throw new Error(`${statements.length} statements: expected one SELECT.`)
  const question: Question = {tables: [], isShown: false}
  visit(statements[0], question)
  return question
}

const wordRefusal = (sql: string) =>
  `expected one SELECT; DESCRIBE, SHOW and SUMMARIZE are answered, too.${
    /\bpivot\b/i.test(sql)
      ? " PIVOT needs its values: `pivot core.deal on status in ('funded', 'closing') using sum(loan_amount)`."
      : ''
  }`

const node = z.looseObject({
  type: z.string().optional().catch(undefined),
  function_name: z.string().optional(),
  table_name: z.string().optional(),
  schema_name: z.string().optional(),
})

/** Every node, whatever holds it: a part of the tree that this version does not know is looked at as well. */
function visit(part: unknown, question: Question): void {
  if (Array.isArray(part)) for (const one of part) visit(one, question)
  if (typeof part !== 'object' || part === null || Array.isArray(part)) return
  const {type, function_name, table_name = '', schema_name} = node.parse(part)
  if (type === 'TABLE_FUNCTION') requireTableFunction(part)
  if (type === 'SHOW_REF') question.isShown = true
  if (function_name !== undefined && REFUSED_FUNCTIONS.has(function_name.toLowerCase()))
    throw new Error(`function '${function_name}' is not for questions.`)
  if (type === 'BASE_TABLE') {
    if (/[./\\]/.test(table_name))
      throw new Error(`file '${table_name}': expected a table of the release; files are not read.`)
    if (REFUSED_VIEWS.has(table_name.toLowerCase()))
      throw new Error(`table '${table_name}' is not for questions: duckdb_tables and duckdb_columns are.`)
    question.tables.push([schema_name, table_name].filter(Boolean).join('.'))
  }
  for (const value of Object.values(part)) visit(value, question)
}

const tableFunction = z.object({function: z.object({function_name: z.string()})})

function requireTableFunction(part: object): void {
  const {function_name} = tableFunction.parse(part).function
  if (TABLE_FUNCTIONS.has(function_name.toLowerCase())) return
  throw new Error(
    `function '${function_name}' in FROM: expected a table, or a function such as range, unnest, json_each or duckdb_columns.`,
  )
}

const seedRow = z.object({name: z.string()})

/** The tables that a release would have if it knew only some of its deals. */
export interface DealSet {
  /** The database that holds them, in the release's schemas. */
  catalog: string
  /** Makes tables, with those they are computed from, unless they are there. @param names `mart.portfolio_summary` */
  require(names: readonly string[]): Promise<void>
}

/**
 * Selects deals of a release, with all their history. Tables of which each row belongs to one deal are the release's, of these
 * deals; every other is computed by its own model over them. What tells of walks is as in the release.
 *
 * @param db the release attached as `release`, its `work` tables as `kept`; `as_of` and `known_at` are variables of it
 * @param condition SQL over `core.deal`
 */
export async function createDealSet(
  db: Database,
  models: readonly ReleaseModel[],
  {catalog, condition}: {catalog: string; condition: string},
): Promise<DealSet> {
  const byName = new Map(models.map((model) => [model.name, model]))
  const schemas = models.flatMap(({name, reads}) => [name, ...reads]).map((name) => name.split('.')[0] ?? '')
  const seeds = await db.all(
    seedRow,
    `select table_name as name from duckdb_tables() where database_name = 'release' and schema_name = 'seed'`,
  )
  const made = new Set(seeds.map(({name}) => `seed.${name}`))
  await db.run(
    [
      `attach ':memory:' as ${catalog}`,
      ...[...new Set([...schemas, 'seed'])].map((schema) => `create schema ${catalog}.${quoteName(schema)}`),
      ...seeds.map(
        ({name}) => `create view ${catalog}.seed.${quoteName(name)} as from release.seed.${quoteName(name)}`,
      ),
      `create table ${catalog}.main.deals as select deal_id from release.core.deal as deal where ${condition}`,
    ].join(';\n'),
  )

  async function make(name: string): Promise<void> {
    if (made.has(name)) return
    made.add(name)
    const table = `${catalog}.${qualify(name)}`
    const model = byName.get(name)
    const stored = `${model?.is_published === false ? 'kept' : 'release'}.${qualify(name)}`
    if (name === 'core.deal') {
      // As a filter it is several times as fast as a join.
      await db.run(`create view ${table} as from ${stored} as deal where ${condition}`)
    } else if (model?.is_per_deal) {
      const those = `select stored.* from ${stored} as stored semi join ${catalog}.main.deals using (deal_id)`
      await db.run(`create view ${table} as ${those}`)
    } else if (!model || model.reads.some((read) => read.startsWith('raw.'))) {
      await db.run(`create view ${table} as from ${stored}`)
    } else {
      for (const read of model.reads) await make(read)
      await db.run(`set search_path = ${quoteLiteral(`${catalog}.main`)}`)
      const columns = model.columns.map((column) =>
        model.is_published
          ? `${quoteName(column.name)}::${column.type} as ${quoteName(column.name)}`
          : quoteName(column.name),
      )
      await db.run(`create table ${table} as select ${columns.join(', ')} from (${model.sql}\n)`)
    }
  }

  return {
    catalog,
    async require(names) {
      for (const name of names) await make(name)
    },
  }
}

const qualify = (name: string) => name.split('.').map(quoteName).join('.')

/** Whether viewers can read a table. @param viewerTables `LOANTAPE_VIEWER_TABLES`: `mart.*,core.deal` */
export function isForViewers(name: string, viewerTables: string | undefined): boolean {
  if (viewerTables === undefined) return true
  return viewerTables
    .split(/\s*,\s*/)
    .some((one) => one === name || (one.endsWith('.*') && name.startsWith(one.slice(0, -1))))
}

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
}

/** A question of this program itself. */
type OwnQuestion = Pick<Asked, 'sql' | 'condition'> & {params: DuckDBValue[] | undefined}

/** Columns and rows, in order; values are exact text where a number could not hold them. */
export interface Rows {
  columns: {name: string; type: string}[]
  rows: Json[][]
}

/** Sets whose tables are kept; the one that was not asked for longest goes. */
const KEPT_SETS = 6

/** What Node, and rows on their way, may take. */
const BESIDE_ENGINE_MB = 700

/** How often the memory of the process is looked at. */
const WATCH_MS = 50

/** A page of more characters is of no use to a browser. */
const MOST_CHARACTERS = 20_000_000

const [dir = '', filesDir = '', spillDir = '', memoryMb = ''] = process.argv.slice(3)
const found = readRelease(dir)
if (!found) throw new Error(`no release in '${dir}'`)
const release = found
const models = readReleaseModels(dir)
const ALL_DEALS = 'release.main,kept.work'

/** The release in an instance of the engine; what is attached here is all that its questions can read. */
interface Instance extends AsyncDisposable {
  db: Database
  sets: Map<string, DealSet>
}

async function open(file?: string): Promise<Instance> {
  const db = await openRelease(release, {memoryMb: Number(memoryMb), withWork: true, spillDir, file})
  return {db, sets: new Map(), [Symbol.asyncDispose]: () => db[Symbol.asyncDispose]()}
}

let made = 0

/** The set of a condition, as the one that was asked for last. */
async function findSet({db, sets}: Instance, condition: string): Promise<DealSet> {
  made += 1
  const set = sets.get(condition) ?? (await createDealSet(db, models, {catalog: `set${made}`, condition}))
  sets.delete(condition)
  sets.set(condition, set)
  for (const [oldest, {catalog}] of [...sets].slice(0, -KEPT_SETS)) {
    await db.run(`detach ${catalog}`)
    sets.delete(oldest)
  }
  return set
}

/** Lets names mean the tables of some deals. */
async function narrow(
  instance: Instance,
  condition: string | undefined,
  names: readonly string[],
): Promise<void> {
  const set = condition === undefined ? undefined : await findSet(instance, condition)
  await set?.require(models.map(({name}) => name).filter((name) => names.includes(name)))
  const path = set === undefined ? ALL_DEALS : `${set.catalog}.main`
  await instance.db.run(`set search_path = ${quoteLiteral(path)}`)
}

const named = z.object({schema_name: z.string(), table_name: z.string()})

/** Leaves nothing in an instance but those tables of a question that may be read: the release itself is detached. */
async function keepOnly({db, sets}: Instance, only: string, names: readonly string[]): Promise<void> {
  const wanted = new Set(names.map((name) => name.toLowerCase()))
  const stored = await db.all(
    named,
    `select schema_name, table_name from duckdb_tables() where database_name = 'release'`,
  )
  await db.run(`attach ':memory:' as allowed`)
  for (const {schema_name, table_name} of stored) {
    const name = `${schema_name}.${table_name}`
    if (!wanted.has(name.toLowerCase()) || !isForViewers(name, only)) continue
    const table = `${quoteName(schema_name)}.${quoteName(table_name)}`
    await db.run(`create schema if not exists allowed.${quoteName(schema_name)}`)
    await db.run(`create table allowed.${table} as from ${table}`)
  }
  await db.run(`set search_path = 'allowed.main'`)
  const others = [...sets.values()].map(({catalog}) => catalog)
  for (const catalog of ['release', 'kept', ...others]) await db.run(`detach ${catalog}`)
}

/** What pages ask is of this program: they share an instance, which keeps their sets. */
let shared: Promise<Instance> | undefined

async function answerPage({sql, params, condition}: OwnQuestion): Promise<Rows> {
  shared ??= open().catch((error: unknown) => {
    shared = undefined
    throw error
  })
  const instance = await shared
  const names = models.map(({name}) => name).filter((name) => sql.includes(name))
  await narrow(instance, condition, names)
  return await readRows(instance.db, sql, {params})
}

/**
 * A question of a person has an instance of its own: whatever it does to it, nobody else notices. The engine runs the text that was
 * looked at, with nothing around it.
 */
async function answerPerson({sql, condition, only, most, file}: Asked): Promise<Rows> {
  const path = file && join(filesDir, file.name)
  await using instance = await open(path).catch((error: unknown) => {
    throw new Error('the release cannot be read: it may have been removed meanwhile.', {cause: error})
  })
  const {db} = instance
  const {tables, isShown} = await parseQuestion(db, sql)
  await narrow(instance, condition, tables)
  if (only !== undefined) await keepOnly(instance, only, tables)
  if (file === undefined || path === undefined) return await readRows(db, sql, {most})
  // Prepared as it is: errors tell of the text that was given.
  const prepared = await db.connection.prepare(sql)
  prepared.destroySync()
  if (!isShown) await db.run(`create temp view asked as ${sql}`)
  const from = isShown ? `(${sql.replace(/[;\s]+$/, '')}\n)` : 'asked'
  if ('sheet' in file) {
    // Loaded here: no page needs it.
    const {writeQueryBook} = await import('../export/xlsx.ts')
    await writeQueryBook(db, {path, title: file.sheet, from}, release.manifest)
  } else {
    const rows = file.isSafe ? buildSafeRows(await listColumns(db, from), from) : `from ${from}`
    await db.run(`copy (${rows}) to ${quoteLiteral(path)} (${file.format})`)
  }
  return {columns: [], rows: []}
}

const described = z.object({column_name: z.string(), column_type: z.string()})

async function listColumns(db: Database, from: string): Promise<TableColumn[]> {
  const columns = await db.all(described, `describe from ${from}`)
  return columns.map(({column_name, column_type}) => ({name: column_name, type: column_type}))
}

/** Rows of a statement, no more than asked for: it ends where nobody reads on. */
async function readRows(
  {connection}: Database,
  sql: string,
  {params, most = Number.POSITIVE_INFINITY}: {params?: DuckDBValue[] | undefined; most?: number | undefined},
): Promise<Rows> {
  const prepared = await connection.prepare(sql)
  if (params) prepared.bind(params)
  const result = await prepared.stream().finally(() => prepared.destroySync())
  const types = result.columnTypes()
  const columns = result.deduplicatedColumnNames().map((name, index) => ({name, type: String(types[index])}))
  const rows: Json[][] = []
  let characters = 0
  for await (const chunk of result.yieldRowsJson()) {
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

/** What is wrong, without paths, and without advice on settings, which nobody who asks can change. */
function wordFailure(error: unknown): string {
  if (error instanceof LoantapeError) return error.problem
  const [words = ''] = messageOf(error).split('\n\nPossible solutions:')
  return words.replaceAll(`${filesDir}/`, '')
}

let hasSpent = false

/** Whether this process has taken more memory than it may: it answers nothing more. */
export const isSpent = () => hasSpent

/** Removes what was written here for people. */
export const leave = () => rmSync(filesDir, {recursive: true, force: true})

/** Ends a question that takes too much memory, or words what is wrong with it: the engine does not count every text towards its limit. */
async function answer(question: Promise<Rows>): Promise<Rows> {
  const {promise: tooMuch, reject} = Promise.withResolvers<never>()
  const watch = setInterval(() => {
    if (process.memoryUsage.rss() < (Number(memoryMb) + BESIDE_ENGINE_MB) * 1e6) return
    hasSpent = true
    reject(new Error('Out of Memory: its texts take more than a query may have.'))
  }, WATCH_MS)
  try {
    return await Promise.race([question, tooMuch])
  } catch (error) {
    throw newError('QUERY_FAILED', `Query refused: ${closeWords(wordFailure(error))}`)
  } finally {
    clearInterval(watch)
  }
}

/** What is asked about one release. */
export const questions = {
  page: (asked: OwnQuestion) => answer(answerPage(asked)),
  async person(asked: Asked) {
    const rows = await answer(answerPerson(asked))
    // Rows that nobody read keep their instance open until they are collected.
    if (rows.rows.length === asked.most) setImmediate(() => void giveBackMemory())
    return rows
  },
}
