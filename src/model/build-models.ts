import {hash} from 'node:crypto'
import {z} from 'zod'
import {LoantapeError} from '../errors.ts'
import type {BuildPlan, Check, Model, Seed} from '../types.ts'
import {type Database, quoteLiteral, quoteName} from '../warehouse/database.ts'
import {inLanes} from '../warehouse/in-lanes.ts'
import type {TableColumn} from '../warehouse/table-columns.ts'
import {createSqlError} from './model-error.ts'
import {WORK_SCHEMA} from './read-models.ts'
import {loadSeed} from './seeds.ts'

/** What models are built for: which part of the history counts, and how an instant becomes a day. */
export interface Counted {
  /** `YYYY-MM-DD` */
  asOf: string
  /** `YYYY-MM-DD HH:MM:SS[.ssssss]`, UTC. */
  knownAt: string
  /** IANA name of the zone of business dates. */
  timeZone: string
  /** `HH:MM`, where a business day begins. */
  dayCutoff: string
}

/** How models are built. */
export interface BuildOptions {
  /** Runs the building of each model; what it throws of ours goes on as it is. */
  around?: (model: Model, build: () => Promise<void>, lane: Database) => Promise<void>
  /** Bind every model, but run none: tables stay empty and say nothing of themselves. */
  isDry?: boolean
}

/** What is built. While it is compiled no columns are known: tables then have the types that their models have. */
type Buildable = Pick<BuildPlan, 'models' | 'seeds' | 'reads' | 'columns'>

/** A model that was built. */
export interface BuiltModel {
  name: string
  rows: number
  duration_ms: number
}

/** What `create table … as` answers. */
const createdRow = z.object({Count: z.coerce.number()})

/**
 * Builds every model into the empty database attached as `release`, from the one attached as `history`. Tables are
 * written ordered by their grain, with comments on tables and columns. Models of the schema `work` live in memory, in no
 * order, as long as others are to read them. Afterwards the search path is `release.main,history.raw`. Not to be called within a
 * transaction.
 *
 * @returns the published models in the order they were built
 * @throws CheckError `MODEL_BUILD` or `SEED_…`, with file and line
 */
export async function buildModels(
  db: Database,
  plan: Buildable,
  counted: Counted,
  options: BuildOptions = {},
): Promise<BuiltModel[]> {
  await db.run('create schema release.seed')
  for (const seed of plan.seeds) await loadSeed(db, seed)
  const schemas = new Set(plan.models.filter((model) => model.isPublished).map((model) => model.schema))
  for (const schema of schemas) await db.run(`create schema release.${quoteName(schema)}`)
  await db.run(`attach ':memory:' as scratch; create schema scratch.${WORK_SCHEMA}`)
  try {
    for (const lane of db.lanes) {
      await lane.run(`set search_path = 'release.main,scratch.${WORK_SCHEMA},history.raw'`)
      await setCounted(lane, counted)
    }
    return await buildEach(db, plan, options)
  } finally {
    for (const lane of db.lanes) await lane.run(`set search_path = 'release.main,history.raw'`)
    await db.run('detach scratch')
  }
}

async function setCounted(db: Database, {asOf, knownAt, timeZone, dayCutoff}: Counted): Promise<void> {
  await db.run(`set variable as_of = cast(${quoteLiteral(asOf)} as date)`)
  await db.run(`set variable known_at = cast(${quoteLiteral(knownAt)} as timestamp)`)
  await db.run(`set variable time_zone = ${quoteLiteral(timeZone)}`)
  await db.run(`set variable day_cutoff = cast(${quoteLiteral(dayCutoff)} as interval)`)
}

/** Builds the models, those side by side that do not need each other; returns the published ones in their order. */
async function buildEach(
  db: Database,
  {models, reads, columns}: Buildable,
  options: BuildOptions,
): Promise<BuiltModel[]> {
  const readBy = (model: Model) => models.filter(({name}) => reads.get(model.name)?.includes(name))
  const unbuilt = new Set(models)
  const build = async (model: Model, lane: Database) => {
    const built = await buildModel(lane, model, columns.get(model.name), options)
    unbuilt.delete(model)
    // Before the next is waited for: of two that end together one alone is the last to read a table.
    const served = readBy(model).filter(
      (read) => !read.isPublished && ![...unbuilt].some((later) => readBy(later).includes(read)),
    )
    for (const work of served) await lane.run(`drop table ${tableOf(work)}`)
    return built
  }
  const built = await inLanes(db, models, build, readBy)
  return built.filter((_, index) => models[index]?.isPublished)
}

/** The fully qualified table that a model becomes during a build. */
export function tableOf(model: Model): string {
  const catalog = model.isPublished ? 'release' : 'scratch'
  return [catalog, ...model.name.split('.').map(quoteName)].join('.')
}

async function buildModel(
  db: Database,
  model: Model,
  columns: readonly TableColumn[] | undefined,
  options: BuildOptions,
): Promise<BuiltModel> {
  const startedAt = performance.now()
  const table = tableOf(model)
  // Nobody reads a work table in order: sorting it would only cost time.
  const order = model.isPublished ? `order by ${model.grain.map(quoteName).join(', ')}` : ''
  // A published ratio is wider than its model has it: made so at once, its column is written once.
  const shown = (model.isPublished ? columns : undefined)?.map(
    ({name, type}) => `${quoteName(name)}::${type} as ${quoteName(name)}`,
  ) ?? ['*']
  // The file begins on the statement's first line: the engine's line numbers are the file's.
  const sql = `create table ${table} as select ${shown.join(', ')} from (${model.sql}\n) ${order}${options.isDry ? ' with no data' : ''}`
  let rows = 0
  const build = async () => {
    rows = (await db.first(createdRow, sql))?.Count ?? 0
  }
  try {
    await (options.around?.(model, build, db) ?? build())
  } catch (error) {
    if (error instanceof LoantapeError) throw error
    const place = {file: model.file, line: 1}
    throw createSqlError('MODEL_BUILD', `Model '${model.name}' did not build`, place, error)
  }
  if (model.isPublished && !options.isDry) await commentOn(db, model)
  return {name: model.name, rows, duration_ms: Math.round(performance.now() - startedAt)}
}

async function commentOn(db: Database, model: Model): Promise<void> {
  const table = tableOf(model)
  const comments = [
    `comment on table ${table} is ${quoteLiteral(model.description)}`,
    ...model.columns.map(
      ({name, meaning}) => `comment on column ${table}.${quoteName(name)} is ${quoteLiteral(meaning)}`,
    ),
  ]
  await db.run(comments.join(';\n'))
}

/**
 * What a release is built from, as one digest: it changes with a name or a content, and with nothing else.
 *
 * @returns sha256 as 64 hex digits
 */
export function fingerprintModels(
  models: readonly Model[],
  checks: readonly Check[],
  seeds: readonly Seed[],
): string {
  const parts = [
    ...models.map(({name, sql}) => ['model', name, sql]),
    ...checks.map(({name, sql}) => ['check', name, sql]),
    ...seeds.map(({name, text, types}) => ['seed', name, text, JSON.stringify(Object.entries(types).sort())]),
  ]
  const texts = parts.map((part) => JSON.stringify(part)).sort()
  return hash('sha256', texts.join('\n'))
}
