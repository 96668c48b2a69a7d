import {version} from '@duckdb/node-api'
import {z} from 'zod'
import type {BuildPlan, Check, Model, World} from '../types.ts'
import {type Database, openDatabase, quoteName} from '../warehouse/database.ts'
import {migrate} from '../warehouse/migrate.ts'
import {readColumns, type TableColumn} from '../warehouse/table-columns.ts'
import {buildModels, createKeptTest, tableOf} from './build-models.ts'
import {markPerDeal} from './changed-deals.ts'
import {createModelError, createSqlError} from './model-error.ts'
import {formatPlan, keepPlan, keyOfPlan, type ModelSource, parsePlan, readPlan} from './plan-cache.ts'
import {
  findTables,
  listChangingFunctions,
  orderModels,
  parseSelects,
  requireRepeatable,
  requireTablesAlone,
} from './selects.ts'
import {widenDecimals} from './wide-decimals.ts'

/** Types that every tool reading a release understands. */
const PLAIN_TYPES = /^(VARCHAR|BIGINT|DECIMAL\(\d+,\d+\)|DOUBLE|DATE|TIMESTAMP|BOOLEAN)$/

const nameRow = z.object({name: z.string()})

/**
 * Binds every model and every check on an empty warehouse in memory, without running any, so that a wrong name fails
 * in milliseconds and before anything is written.
 *
 * @param world its plans hold what this process compiled before
 * @param cache the folder of plans that others compiled; it can be removed at any time
 * @param engine its version
 * @returns the plan for `buildModels`, models in the order of their dependencies
 * @throws CheckError `MODEL_SQL`, `MODEL_UNKNOWN_TABLE`, `MODEL_CYCLE`, `MODEL_BUILD`, `MODEL_COLUMNS`, `MODEL_TYPE`,
 * `MODEL_INEXACT_SUM`, `MODEL_UNREPEATABLE`, `CHECK_SQL` or `SEED_…`, with file and line
 */
export async function compileModels(
  source: ModelSource,
  {plans}: Pick<World, 'plans'> = {plans: new Map()},
  cache?: string,
  engine: string = version(),
): Promise<BuildPlan> {
  const key = keyOfPlan(source, engine)
  const known = plans.get(key) ?? readPlan(cache, key)
  const kept = known === undefined ? undefined : parsePlan(known, source)
  const plan = kept ?? (await compileAnew(source))
  const text = kept && known ? known : formatPlan(key, plan)
  if (cache && !kept) keepPlan(cache, key, text)
  plans.set(key, text)
  return plan
}

/** Compiles the models whether or not their plan is known. */
export async function compileAnew(source: ModelSource): Promise<BuildPlan> {
  await using db = await openDatabase({
    // Nothing is run, so there is nothing to share out.
    threads: 1,
    attach: [
      {path: ':memory:', alias: 'release'},
      {path: ':memory:', alias: 'history'},
    ],
  })
  await migrate(db, 'history')
  const rawTables = await db.all(
    nameRow,
    `select schema_name || '.' || table_name as name from duckdb_tables()
     where database_name = 'history' and schema_name = 'raw' and table_name not like '%\\_head' escape '\\'`,
  )
  const given = new Set([...rawTables.map(({name}) => name), ...source.seeds.map(({name}) => `seed.${name}`)])
  const selects = await parseSelects(db, source.models)
  for (const model of source.models) requireTablesAlone(model.file, selects.get(model.name))
  const {models: ordered, reads} = orderModels(source.models, selects, given)
  const models = markPerDeal(ordered, reads)
  const columns = new Map<string, TableColumn[]>()
  const changing = await listChangingFunctions(db)
  const isKept = createKeptTest({models, reads})
  const counted = {asOf: '2000-01-01', knownAt: '2000-01-01 00:00:00', timeZone: 'UTC', dayCutoff: '00:00'}
  await buildModels(db, {models, reads, seeds: source.seeds, columns}, counted, {
    isDry: true,
    async around(model, build) {
      await build()
      const table = tableOf(model, isKept(model))
      if (model.isPublished) await widenDecimals(db, table)
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
  const bindChecks = async () => {
    for (const check of source.checks) await bindCheck(db, check)
  }
  // What the parser refuses, the binder words better.
  const checkSelects = await parseSelects(db, source.checks).catch(async (error: unknown) => {
    await bindChecks()
    throw error
  })
  for (const check of source.checks) requireTablesAlone(check.file, checkSelects.get(check.name))
  await bindChecks()
  const checkReads = new Map(
    [...checkSelects].map(([check, select]) => [check, findTables(select).map(({name}) => name)]),
  )
  return {models, seeds: source.seeds, reads, checkReads, columns}
}

/**
 * Holds the columns that a model came to against its header: every column is described, every description has its
 * column, and published types are plain.
 */
function requireDescribedColumns(model: Model, columns: readonly TableColumn[]): void {
  const headerEnd = model.columns.at(-1)?.line ?? 1
  for (const {name, type} of columns) {
    const described = model.columns.find((column) => column.name === name)
    const place = {file: model.file, line: described?.line ?? headerEnd}
    if (!described) {
      throw createModelError(
        'MODEL_COLUMNS',
        place,
        `Column '${name}' of model '${model.name}' is not described: expected \`-- ${name}: meaning\``,
      )
    }
    if (model.isPublished && !PLAIN_TYPES.test(type)) {
      throw createModelError(
        'MODEL_TYPE',
        place,
        `Column '${name}' of model '${model.name}' is ${type}: expected an explicit cast to VARCHAR, BIGINT, DECIMAL, DOUBLE, DATE, TIMESTAMP or BOOLEAN`,
      )
    }
  }
  const stray = model.columns.find(({name}) => !columns.some((column) => column.name === name))
  if (stray) {
    throw createModelError(
      'MODEL_COLUMNS',
      {file: model.file, line: stray.line},
      `Header describes column '${stray.name}', which model '${model.name}' does not have: expected ${columns.map(({name}) => name).join(', ')}`,
    )
  }
}

async function bindCheck(db: Database, check: Check): Promise<void> {
  try {
    // As a subquery only a SELECT is accepted, as when it runs.
    await db.run(`explain select * from (${check.sql}\n)`)
  } catch (error) {
    const place = {file: check.file, line: check.line ?? 1}
    throw createSqlError('CHECK_SQL', `Check '${check.name}' is not a valid SELECT`, place, error)
  }
}
