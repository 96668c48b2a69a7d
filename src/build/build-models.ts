import {hash} from 'node:crypto'
import {z} from 'zod'
import {DEAL_ID} from '../contract/deal.ts'
import type {Config} from '../core/config.ts'
import {LoantapeError} from '../core/errors.ts'
import type {BuildPlan, Check, Model, ModelSource, Moment} from '../core/types.ts'
import {type Database, inLanes, quoteLiteral, quoteName, quoteTable} from '../store/database.ts'
import type {ReleaseManifest} from '../store/release.ts'
import {countRows, digestRows, SQL_DIR, type TableColumn} from '../store/sql.ts'
import {createSqlError, WORK_SCHEMA} from './read-models.ts'
import {loadSeed} from './seeds.ts'

/** The moment to build for, and the settings that turn instants into days. */
export type Counted = Moment & Pick<Config, 'timeZone' | 'dayCutoff'>

export type Subject = Model | Check | {name: string; file: string}

/** Wraps the work on one of them, to keep limits. */
export type Around = <T>(subject: Subject, work: () => Promise<T>, lane: Database) => Promise<T>

export interface BuildOptions {
  /** Wraps the building of each model into its table. */
  around?: (model: Model, build: () => Promise<void>, lane: Database, table: string) => Promise<void>
  /** Binds every model without running it: tables stay empty and get no comments. */
  isDry?: boolean
  /** The file for kept `work` tables; in memory by default. */
  work?: string | undefined
  /**
   * Starts from the previous build: its tables are in `release` and `kept`, the changed deals in `changed` (`attachChanged`), and
   * this is the `shared` that it returned.
   */
  before?: Shared | undefined
}

/** Digests, by name, of the models that are built whole and read by models built per deal. */
type Shared = Readonly<Record<string, string>>

/** While compiling, `columns` is empty, and each table takes the types of its SELECT. */
type Buildable = Pick<BuildPlan, 'models' | 'seeds' | 'reads' | 'columns'>

const countRow = z.object({Count: z.coerce.number()})

/**
 * Builds every model into the attached database `release` from `history`. Models of the schema `work` stay in memory until their
 * last reader is built, except those that {@link createTableNames} puts into `kept`. Afterwards the search path is
 * {@link RELEASE_PATH}. Must not run inside a transaction. With `before`, models `per: deal_id` are built only for the deals in
 * `changed`.
 * @throws CheckError `MODEL_BUILD` or `SEED_…`, with file and line; with `before` also an Error that says why the build cannot
 *   start from it
 */
export async function buildModels(
  db: Database,
  plan: Buildable,
  counted: Counted,
  options: BuildOptions = {},
) {
  const file = quoteLiteral(options.work ?? ':memory:')
  await db.run(`attach ${file} as kept${options.work === undefined ? '' : KEPT_FORMAT}`)
  await db.run(`attach ':memory:' as unkept; create schema unkept.${WORK_SCHEMA}`)
  try {
    await createSchemas(db, plan)
    for (const seed of plan.seeds) await loadSeed(db, seed)
    for (const lane of db.lanes) await setCounted(lane, counted)
    const built = await buildEach(db, plan, options)
    if (options.work !== undefined) await db.run('checkpoint kept')
    return built
  } finally {
    for (const lane of db.lanes) await lane.run(`set search_path = ${quoteLiteral(RELEASE_PATH)}`)
    await db.run('detach unkept; detach kept')
  }
}

/** A crashed build is deleted, so it needs no write-ahead log. */
const KEPT_FORMAT = ` (recovery_mode no_wal_writes, storage_version 'latest')`

async function createSchemas(db: Database, {models}: Buildable): Promise<void> {
  const published = models.filter(({isPublished}) => isPublished).map(({schema}) => quoteName(schema))
  const schemas = [...new Set(['seed', ...published])].map((schema) => `release.${schema}`)
  for (const schema of [...schemas, `kept.${WORK_SCHEMA}`])
    await db.run(`create schema if not exists ${schema}`)
}

async function setCounted(db: Database, {asOf, knownAt, timeZone, dayCutoff}: Counted): Promise<void> {
  await db.run(
    `set search_path = ${quoteLiteral(WHOLE_PATH)};
     set variable as_of = cast(${quoteLiteral(asOf)} as date);
     set variable known_at = cast(${quoteLiteral(knownAt)} as timestamp);
     set variable time_zone = ${quoteLiteral(timeZone)};
     set variable day_cutoff = cast(${quoteLiteral(dayCutoff)} as interval)`,
  )
}

async function buildEach(db: Database, {models, reads, columns}: Buildable, options: BuildOptions) {
  const readBy = (model: Model) => models.filter(({name}) => reads.get(model.name)?.includes(name))
  const tableOf = createTableNames({models, reads})
  const isShared = (model: Model) =>
    !model.isPerDeal && models.some((other) => other.isPerDeal && readBy(other).includes(model))
  const changedPath = changedPathOf(models, WORK_SCHEMAS)
  const unbuilt = new Set(models)
  const shared: Record<string, string> = {}
  const build = async (model: Model, lane: Database) => {
    const table = tableOf(model)
    const path = model.isPerDeal ? changedPath : WHOLE_PATH
    if (options.before) await lane.run(`set search_path = ${quoteLiteral(path)}`)
    const built = await buildModel(lane, {model, table, columns: columns.get(model.name)}, options)
    unbuilt.delete(model)
    if (isShared(model) && !options.isDry) {
      const digest = await digestRows(lane, `from ${table}`)
      if (options.before && options.before[model.name] !== digest)
        throw new Error(`${model.name} has changed`)
      shared[model.name] = digest
    }
    // Two models that finish together may both drop the same table.
    const served = readBy(model).filter((read) => ![...unbuilt].some((later) => readBy(later).includes(read)))
    for (const name of served.map(tableOf))
      if (name.startsWith('unkept.')) await lane.run(`drop table if exists ${name}`)
    return built
  }
  const built = await inLanes(db, models, build, readBy)
  return {
    /** The published ones, in build order. */
    models: built.filter((_, index) => models[index]?.isPublished),
    /** The `before` of the next build. */
    shared,
  }
}

/**
 * A `work` model is kept with the release if a model built whole reads it, and it cannot be computed from a release because it
 * is built per deal or reads raw tables.
 */
function createTableNames({models, reads}: Pick<BuildPlan, 'models' | 'reads'>): (model: Model) => string {
  const whole = models.filter(({isPerDeal}) => !isPerDeal).flatMap(({name}) => reads.get(name) ?? [])
  return ({name, isPerDeal, isPublished}) => {
    if (isPublished) return quoteTable('release', name)
    const isRaw = reads.get(name)?.some((read) => read.startsWith('raw.'))
    return quoteTable(whole.includes(name) && (isPerDeal || isRaw) ? 'kept' : 'unkept', name)
  }
}

/** The search path once all tables are built. */
export const RELEASE_PATH = 'release.main,history.raw'

const WORK_SCHEMAS = [`kept.${WORK_SCHEMA}`, `unkept.${WORK_SCHEMA}`]

/** The search path of models built whole. */
const WHOLE_PATH = ['release.main', ...WORK_SCHEMAS, 'history.raw'].join(',')

async function buildModel(
  db: Database,
  {model, table, columns}: {model: Model; table: string; columns: readonly TableColumn[] | undefined},
  options: BuildOptions,
): Promise<ReleaseManifest['models'][number]> {
  const startedAt = performance.now()
  // Work tables are not sorted: nobody reads them in order. If a column is missing, the header is refused after a dry build.
  const inOrder =
    model.isPublished && !options.isDry ? `order by ${model.order.map(quoteName).join(', ')}` : ''
  // Published ratios are wider than in the model; the cast here saves writing the column a second time.
  const shown = (model.isPublished ? columns : undefined)?.map(
    ({name, type}) => `${quoteName(name)}::${type} as ${quoteName(name)}`,
  ) ?? ['*']
  // The model's text begins on the first line of the statement, so the engine's line numbers are the file's.
  const select = `select ${shown.join(', ')} from (${model.sql}\n)`
  const isChanged = options.before !== undefined && model.isPerDeal
  let rows = 0
  const build = async () => {
    if (isChanged) {
      const changed = quoteTable('changed', model.name)
      await db.run(`create table ${changed} as ${select}`)
      if (table.startsWith('unkept.')) return
      await db.run(`delete from ${table} where ${DEAL_ID} in (select ${DEAL_ID} from changed.main.deal)`)
      await db.run(`insert into ${table} by name from ${changed}`)
      rows = await countRows(db, table)
    } else {
      const sql = `create or replace table ${table} as ${select} ${inOrder}${options.isDry ? ' with no data' : ''}`
      rows = (await db.first(countRow, sql))?.Count ?? 0
    }
  }
  try {
    await (options.around?.(model, build, db, table) ?? build())
  } catch (error) {
    if (error instanceof LoantapeError) throw error
    const place = {file: model.file, line: 1}
    throw createSqlError('MODEL_BUILD', `Model '${model.name}' did not build`, place, error, !options.isDry)
  }
  if (model.isPublished && !isChanged && !options.isDry) await commentOn(db, model)
  return {name: model.name, rows, duration_ms: Math.round(performance.now() - startedAt)}
}

async function commentOn(db: Database, model: Model): Promise<void> {
  const table = quoteTable('release', model.name)
  const comments = [
    `comment on table ${table} is ${quoteLiteral(model.description)}`,
    ...model.columns.map(
      ({name, meaning}) => `comment on column ${table}.${quoteName(name)} is ${quoteLiteral(meaning)}`,
    ),
  ]
  await db.run(comments.join(';\n'))
}

/**
 * Digests everything a release is built from, except seeds that are apart: their changes need no whole build. sha256 as 64 hex
 * digits.
 */
export function fingerprintModels({models, checks, seeds}: ModelSource): string {
  const parts = [
    ...models.map(({name, sql}) => ['model', name, sql]),
    ...checks.map(({name, sql}) => ['check', name, sql]),
    ...seeds
      .filter(({isApart}) => !isApart)
      .map(({name, text, types}) => ['seed', name, text, JSON.stringify(Object.entries(types).sort())]),
  ]
  const texts = parts.map((part) => JSON.stringify(part)).sort()
  return hash('sha256', texts.join('\n'))
}

/**
 * A model `per: deal_id` is still built whole if it reads notes, which can come at any time, or a deal table that is built
 * whole, such as a user's replacement of a shipped model, or if it counts days up to the release's. `models` are in dependency
 * order.
 */
export function markPerDeal(models: readonly Model[], reads: BuildPlan['reads']): Model[] {
  const marked: Model[] = []
  for (const model of models) {
    const whole = marked.filter(
      ({isPerDeal, columns}) => !isPerDeal && columns.some(({name}) => name === DEAL_ID),
    )
    const isPerDeal = model.isPerDeal && !needsWhole(model, reads.get(model.name), whole)
    marked.push({...model, isPerDeal})
  }
  return marked
}

/** Checks run over changed deals only, but over all deals if they read a table built whole. */
export function markChecks(
  checks: readonly Check[],
  {models, checkReads}: Pick<BuildPlan, 'models' | 'checkReads'>,
): Check[] {
  const whole = models.filter(({isPerDeal}) => !isPerDeal)
  return checks.map((check) => ({
    ...check,
    isPerDeal: check.isPerDeal && !needsWhole(check, checkReads.get(check.name), whole),
  }))
}

function needsWhole(
  {sql, file}: Check | Model,
  read: readonly string[] = [],
  whole: readonly Model[],
): boolean {
  const isOurs = file.startsWith(`${SQL_DIR}/`) || file === 'fields.json'
  // Where our models read raw tables, the moment only says which rows count, and a later one hides none.
  const onlyHides = isOurs && read.some((table) => table.startsWith('raw.'))
  const countsDays = !onlyHides && /'(as_of|known_at)'/i.test(sql)
  return countsDays || read.includes('seed.note') || whole.some(({name}) => read.includes(name))
}

/**
 * On this search path, raw tables and models `per: deal_id` hold only rows of changed deals. `others` are schemas of the other
 * tables.
 */
export function changedPathOf(models: readonly Model[], others: readonly string[] = []): string {
  const changed = [...schemasOf(models), 'raw'].map((schema) => `changed.${quoteName(schema)}`)
  return ['release.main', ...changed, ...others, 'history.raw'].join(',')
}

export function schemasOf(models: readonly Model[]): string[] {
  return [...new Set(models.filter(({isPerDeal}) => isPerDeal).map(({schema}) => schema))]
}
