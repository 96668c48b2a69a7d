import {hash} from 'node:crypto'
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {version} from '@duckdb/node-api'
import {z} from 'zod'
import type {ErrorCode} from '../core/errors.ts'
import {GENERATOR} from '../core/process.ts'
import {findNearest} from '../core/text.ts'
import type {BuildPlan, Check, Model, ModelSource} from '../core/types.ts'
import {type Database, openDatabase, quoteName} from '../store/database.ts'
import {findNodes, hasExactSum, type Node, readColumns, SQL_DIR, type TableColumn} from '../store/sql.ts'
import {listRawTables, migrate} from '../store/warehouse.ts'
import {buildModels, fingerprintModels, markPerDeal} from './build-models.ts'
import {COLUMN_NAME, createModelError, createSqlError, type Place} from './read-models.ts'
import {widenNumbers} from './seeds.ts'

/**
 * Binds every model and check on an empty warehouse in memory, without running any, so that a wrong name fails in milliseconds
 * and before anything is written. Models of the plan are in dependency order.
 * @throws CheckError `MODEL_FILE`, `MODEL_BUILD`, `CHECK_SQL` or `SEED_…`, with file and line
 */
export async function compileModels(source: ModelSource): Promise<BuildPlan> {
  const key = keyOfPlan(source)
  const known = compiledPlans.get(key) ?? readShippedPlan(key)
  const text = known ?? formatPlan(key, await compileAnew(source))
  compiledPlans.set(key, text)
  return parsePlan(text, source)
}

/** Plans as text, by {@link keyOfPlan}. */
export const compiledPlans = new Map<string, string>()

/** Compiles even if the plan is known. */
export async function compileAnew(source: ModelSource): Promise<BuildPlan> {
  await using db = await openDatabase({
    // Nothing runs, so more threads gain nothing.
    threads: 1,
    attach: [
      {path: ':memory:', alias: 'release'},
      {path: ':memory:', alias: 'history'},
    ],
  })
  await migrate(db, 'history')
  const rawTables = (await listRawTables(db)).filter((name) => !name.endsWith('_head'))
  const given = new Set([
    ...rawTables.map((name) => `raw.${name}`),
    ...source.seeds.map(({name}) => `seed.${name}`),
  ])
  await requireNames(db, source.models)
  const selects = await parseSelects(db, source.models)
  for (const select of selects.values()) requireTablesAlone(select)
  const reads = listReads(selects)
  const models = markPerDeal(orderModels(source.models, selects, given), reads)
  const columns = new Map<string, TableColumn[]>()
  const changing = await listChangingFunctions(db)
  const counted = {asOf: '2000-01-01', knownAt: '2000-01-01 00:00:00', timeZone: 'UTC', dayCutoff: '00:00'}
  await buildModels(db, {models, reads, seeds: source.seeds, columns}, counted, {
    isDry: true,
    async around(model, build, _lane, table) {
      await build()
      if (model.isPublished) await widenNumbers(db, table)
      const described = await readColumns(db, table)
      requireDescribedColumns(model, described)
      columns.set(model.name, described)
      const select = selects.get(model.name)
      if (select) await requireRepeatable(db, model, select, changing)
    },
  })
  for (const {name} of source.seeds) {
    columns.set(`seed.${name}`, await readColumns(db, `release.seed.${quoteName(name)}`))
  }
  const checkSelects = await parseSelects(db, source.checks, 'CHECK_SQL')
  for (const select of checkSelects.values()) requireTablesAlone(select)
  for (const check of source.checks) await bindCheck(db, check)
  return {models, seeds: source.seeds, reads, checkReads: listReads(checkSelects), columns}
}

/** SQL takes a schema named like one of its own words only in quotes, which no query of ours sets. */
async function requireNames(db: Database, models: readonly Model[]): Promise<void> {
  const words = await db.column(
    z.string(),
    `select keyword_name from duckdb_keywords() where keyword_category in ('reserved', 'type_function')`,
  )
  const wrong = models.find(({schema}) => words.includes(schema))
  if (!wrong) return
  const problem = `Schema '${wrong.schema}' is a word of SQL: expected a folder of another name,`
  throw createModelError('MODEL_FILE', {file: wrong.file, line: 1}, problem)
}

function listReads(selects: ReadonlyMap<string, ParsedSelect>): BuildPlan['reads'] {
  return new Map([...selects].map(([name, {tables}]) => [name, [...new Set(tables.map((one) => one.name))]]))
}

/** Every column has a description, every description a column, and published types are plain. */
function requireDescribedColumns(
  {name: model, file, isPublished, columns: described, addsUp}: Model,
  columns: readonly TableColumn[],
): void {
  const refuse = (problem: string, line = 1) => createModelError('MODEL_FILE', {file, line}, problem)
  for (const {name, type} of columns) {
    const own = described.find((column) => column.name === name)
    const column = `Column '${name}' of model '${model}' is`
    const line = COLUMN_NAME.test(name)
      ? `\`-- ${name}: meaning\``
      : 'a name of lower-case letters, digits and _, with `as`,'
    // The engine's name for a second column 'a' is 'a_1'.
    const first = columns.find((other) => other.name !== name && other.name === name.replace(/_\d+$/, ''))
    const second = first ? `, or another name if it is a second '${first.name}'` : ''
    if (!own) throw refuse(`${column} not described: expected ${line}${second}`, described.at(-1)?.line)
    const expected = 'an explicit cast to VARCHAR, BIGINT, DECIMAL, DOUBLE, DATE, TIMESTAMP or BOOLEAN'
    if (isPublished && !PLAIN_TYPES.test(type))
      throw refuse(`${column} ${type}: expected ${expected}`, own.line)
    if (isPublished && addsUp.includes(name) && !hasExactSum({name, type}))
      throw refuse(`${column} ${type}, which does not add up: expected BIGINT or DECIMAL,`, own.line)
  }
  const names = columns.map(({name}) => name)
  const stray = described.find(({name}) => !names.includes(name))
  const problem = `Header describes column '${stray?.name}', which model '${model}' does not have`
  if (stray) throw refuse(`${problem}: expected ${names.join(', ')}`, stray.line)
}

async function bindCheck(db: Database, check: Check): Promise<void> {
  try {
    // A subquery, as when the check runs, so only a SELECT is accepted.
    await db.run(`explain select * from (${check.sql}\n)`)
  } catch (error) {
    throw createSqlError('CHECK_SQL', `Check '${check.name}' is not a valid SELECT`, check, error)
  }
}

type ParsedSelect = ReturnType<typeof parseSelect>

const parsedSelect = z.object({
  error: z.boolean(),
  error_message: z.string().optional(),
  position: z.coerce.number().optional(),
  statements: z.array(z.unknown()).optional(),
})

/** Parses files of one SELECT each, all in one statement. `code` is that of the CheckError if a file is not one SELECT. */
export async function parseSelects(
  db: Database,
  sources: readonly {name: string; file: string; sql: string}[],
  code: ErrorCode = 'MODEL_FILE',
): Promise<Map<string, ParsedSelect>> {
  const trees = await db.column(
    z.string(),
    `select json_serialize_sql(sql)::varchar
     from (select unnest(from_json($1::varchar, '["varchar"]')) as sql)`,
    [JSON.stringify(sources.map(({sql}) => sql))],
  )
  return new Map(sources.map((source, index) => [source.name, parseSelect(source, code, trees[index])]))
}

function parseSelect({file, sql}: {file: string; sql: string}, code: ErrorCode, tree = '{}') {
  const parsed = parsedSelect.parse(JSON.parse(tree))
  const bytes = Buffer.from(sql)
  const placeOf = (position = 0): Place => ({
    file,
    line: bytes.subarray(0, position).toString().split('\n').length,
  })
  const {statements = []} = parsed
  if (parsed.error || statements.length !== 1) {
    const words = parsed.error ? (parsed.error_message ?? 'no statement') : `${statements.length} statements`
    const problem = `A model or check must be exactly one SELECT: ${words},`
    throw createModelError(code, placeOf(parsed.position), problem)
  }
  const ctes = findNodes(statements, ({cte_map}) => cte_map !== undefined).flatMap(
    ({cte_map}) => cte_map?.map.map(({key}) => key.toLowerCase()) ?? [],
  )
  const tables = findNodes(statements, ({type}) => type === 'BASE_TABLE')
    .map(({schema_name, table_name = '', query_location}) => ({
      // The engine takes names in any case, and ours are in lower case.
      name: (schema_name ? `${schema_name}.${table_name}` : table_name).toLowerCase(),
      place: placeOf(query_location),
    }))
    .filter(({name}) => !ctes.includes(name))
  /** `tables` are those that it reads, without its CTEs; `placeOf` one of the parser's byte positions. */
  return {statements, tables, placeOf}
}

/**
 * Orders models by dependencies, then by name. `given` are tables that exist without a model: `raw.…` and `seed.…`.
 * @throws CheckError `MODEL_FILE`, with file and line
 */
function orderModels(
  models: readonly Model[],
  selects: ReadonlyMap<string, ParsedSelect>,
  given: ReadonlySet<string>,
): Model[] {
  const byName = new Map(models.map((model) => [model.name, model]))
  const ordered = new Set<Model>()
  const visit = (model: Model, path: readonly string[]): void => {
    if (ordered.has(model)) return
    const chain = [...path, model.name]
    for (const {name, place} of selects.get(model.name)?.tables ?? []) {
      if (chain.includes(name)) {
        const cycle = [...chain.slice(chain.indexOf(name)), name].join(' → ')
        const problem = `Models read each other in a cycle, ${cycle}: expected an order,`
        throw createModelError('MODEL_FILE', place, problem)
      }
      const read = byName.get(name)
      if (read) visit(read, chain)
      else if (!given.has(name)) {
        const nearest = findNearest(name, [...byName.keys(), ...given])
        const isMapped = name.startsWith('core.deal_extra')
        const near = nearest === undefined ? '' : `; the nearest is '${nearest}'`
        const hint = isMapped ? '; this one is there once fields.json of the data folder maps a field' : near
        const expected = `expected a model, a seed or a raw table, written as schema.table${hint},`
        throw createModelError('MODEL_FILE', place, `Unknown table '${name}': ${expected}`)
      }
    }
    ordered.add(model)
  }
  for (const model of models.toSorted((a, b) => (a.name < b.name ? -1 : 1))) visit(model, [])
  return [...ordered]
}

/** Table functions whose rows depend only on their arguments; all others read files or the engine's state. */
const PURE_TABLE_FUNCTIONS = /^(range|generate_series|unnest|repeat|repeat_row|json_each|json_tree)$/

/**
 * Checked before the engine binds a SELECT, since binding opens the files it names.
 * @throws CheckError `MODEL_FILE`, with file and line
 */
function requireTablesAlone({statements, placeOf}: ParsedSelect): void {
  const isRead = ({type}: Node) => type === 'BASE_TABLE' || type === 'TABLE_FUNCTION'
  for (const {table_name = '', function: called, query_location} of findNodes(statements, isRead)) {
    const place = placeOf(query_location)
    // Comparing with known names would not do: a CTE elsewhere in the SELECT may have the name of the file.
    if (/[./\\]/.test(table_name)) {
      const problem = `Unknown table '${table_name}': expected a model, a seed or a raw table; files are not read,`
      throw createModelError('MODEL_FILE', place, problem)
    }
    const name = called?.function_name.toLowerCase()
    if (name !== undefined && !PURE_TABLE_FUNCTIONS.test(name)) throw createUnrepeatable(place, `${name}()`)
  }
}

/** Functions that the engine wrongly calls constant: they depend on the time or the machine (`age` only with one argument). */
const TAKEN_FOR_CONSTANT = ['current_localtime', 'current_localtimestamp', 'current_setting', 'age']

/** Their result can change between statements. */
async function listChangingFunctions(db: Database): Promise<Set<string>> {
  const names = await db.column(
    z.string(),
    `select distinct function_name from duckdb_functions()
     where stability in ('VOLATILE', 'CONSISTENT_WITHIN_QUERY') and function_name <> 'error'`,
  )
  return new Set([...names, ...TAKEN_FOR_CONSTANT])
}

/** Aggregates that add up; over a DOUBLE their result varies with the number of threads. Some take nothing else. */
const SUMS =
  /^(f?sum|sumkahan|kahan_sum|f?avg|mean|product|geo.*mean|stddev.*|sem|var_.*|variance|covar_.*|corr|regr_.*|skewness|kurtosis.*)$/

/**
 * A model gives the same rows whenever it is built: it uses neither time nor randomness, takes no sample, and does not sum or
 * average a DOUBLE or FLOAT.
 * @throws CheckError `MODEL_FILE`, with file and line
 */
async function requireRepeatable(
  db: Database,
  {name: model, sql}: Model,
  {statements, placeOf}: ParsedSelect,
  changing: ReadonlySet<string>,
): Promise<void> {
  const [sampled] = findNodes(statements, (node) => Boolean(node.sample))
  if (sampled)
    throw createUnrepeatable(placeOf((sampled.from_table ?? sampled).query_location), 'using sample')
  // The bound plan has macros resolved and shows the types of sums.
  const json = await db.value(z.string(), 'select json_serialize_plan($1::varchar)::varchar', [sql])
  const bound = findNodes(
    JSON.parse(json),
    ({expression_class}) => expression_class?.startsWith('BOUND_') === true,
  )
  for (const {expression_class, name = '', arguments: given = [], query_location} of bound) {
    const isSum = expression_class !== 'BOUND_FUNCTION' && SUMS.test(name)
    if (isSum && /^(DOUBLE|FLOAT)$/.test(`${given[0]?.id}`)) {
      const call = findNodes(statements, ({function_name}) => function_name?.toLowerCase() === name)[0]
      const problem = `${name}() of model '${model}' adds up ${given[0]?.id}, whose sum depends on the order: expected sums of DECIMAL or whole numbers (\`/\` makes DOUBLE: write amount * 0.2, or cast to decimal(38, 2))`
      throw createModelError('MODEL_FILE', placeOf(call?.query_location), problem)
    }
    const isChanging = expression_class === 'BOUND_FUNCTION' && changing.has(name)
    if (isChanging && !(name === 'age' && given.length > 1))
      throw createUnrepeatable(placeOf(query_location), `${name}()`)
  }
}

function createUnrepeatable(place: Place, what: string): Error {
  const problem = `${what} can give another result on another day or machine: expected only models, seeds, raw tables and getvariable('as_of'), so that a release can be built again,`
  return createModelError('MODEL_FILE', place, problem)
}

const byName = <T>(what: z.ZodType<T>) =>
  z.array(z.tuple([z.string(), z.array(what)])).transform((lists) => new Map(lists))
const planFile = z.object({
  models: z.array(z.string()),
  reads: byName(z.string()),
  checkReads: byName(z.string()),
  columns: byName(z.object({name: z.string(), type: z.string()})),
})

/** Written by `npm run docs`. */
export const SHIPPED_PLAN: string = join(SQL_DIR, 'plan.json')

/**
 * Digests these sources, the engine and the version. Rows of a computed seed do not count: they were validated when read, and no
 * plan depends on them.
 */
export function keyOfPlan({models, checks, seeds}: ModelSource): string {
  const shapes = seeds.map((seed) => (seed.isComputed ? {...seed, text: seed.columns.join()} : seed))
  const parts = [fingerprintModels({models, checks, seeds: shapes}), version(), GENERATOR]
  return hash('sha256', parts.join('\n')).slice(0, 16)
}

function readShippedPlan(key: string): string | undefined {
  const shipped = readFileSync(SHIPPED_PLAN, 'utf8')
  return shipped.startsWith(`{"key":"${key}"`) ? shipped : undefined
}

function parsePlan(text: string, {models, seeds}: ModelSource): BuildPlan {
  const {models: order, ...lists} = planFile.parse(JSON.parse(text))
  const ordered = order.flatMap((name) => models.find((model) => model.name === name) ?? [])
  return {models: markPerDeal(ordered, lists.reads), seeds, ...lists}
}

/** Only what the sources do not contain. */
export function formatPlan(key: string, {models, reads, checkReads, columns}: BuildPlan): string {
  return JSON.stringify({
    key,
    models: models.map(({name}) => name),
    reads: [...reads],
    checkReads: [...checkReads],
    columns: [...columns],
  })
}

/** Types that every tool reading a release understands. */
const PLAIN_TYPES = /^(VARCHAR|BIGINT|DECIMAL\(\d+,\d+\)|DOUBLE|DATE|TIMESTAMP|BOOLEAN)$/
