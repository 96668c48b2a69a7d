import {hash} from 'node:crypto'
import {z} from 'zod'
import {LoantapeError} from '../errors.ts'
import type {BuildPlan, Check, Model, Seed} from '../types.ts'
import {type Database, quoteLiteral, quoteName} from '../warehouse/database.ts'
import {createSqlError} from './model-error.ts'
import {WORK_SCHEMA} from './read-models.ts'
import {loadSeed} from './seeds.ts'
import {widenDecimals} from './wide-decimals.ts'

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
  around?: (model: Model, build: () => Promise<void>) => Promise<void>
  /** Bind every model, but run none: tables stay empty and say nothing of themselves. */
  isDry?: boolean
}

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
  plan: Pick<BuildPlan, 'models' | 'seeds' | 'reads'>,
  counted: Counted,
  options: BuildOptions = {},
): Promise<BuiltModel[]> {
  await db.run(`set variable as_of = cast(${quoteLiteral(counted.asOf)} as date)`)
  await db.run(`set variable known_at = cast(${quoteLiteral(counted.knownAt)} as timestamp)`)
  await db.run(`set variable time_zone = ${quoteLiteral(counted.timeZone)}`)
  await db.run(`set variable day_cutoff = cast(${quoteLiteral(counted.dayCutoff)} as interval)`)
  await db.run('create schema release.seed')
  for (const seed of plan.seeds) await loadSeed(db, seed)
  const schemas = new Set(plan.models.filter((model) => model.isPublished).map((model) => model.schema))
  for (const schema of schemas) await db.run(`create schema release.${quoteName(schema)}`)
  await db.run(`attach ':memory:' as scratch; create schema scratch.${WORK_SCHEMA}`)
  try {
    await db.run(`set search_path = 'release.main,scratch.${WORK_SCHEMA},history.raw'`)
    const built: BuiltModel[] = []
    for (const [index, model] of plan.models.entries()) {
      const result = await buildModel(db, model, options)
      if (model.isPublished) built.push(result)
      for (const served of listServed(plan, index)) await db.run(`drop table ${tableOf(served)}`)
    }
    return built
  } finally {
    await db.run(`set search_path = 'release.main,history.raw'`)
    await db.run('detach scratch')
  }
}

/** The work models that the model at `index` was the last to read. */
function listServed({models, reads}: Pick<BuildPlan, 'models' | 'reads'>, index: number): Model[] {
  const isReadBy = (work: Model, reader: Model | undefined) =>
    reader !== undefined && (reads.get(reader.name)?.includes(work.name) ?? false)
  return models.filter(
    (work) =>
      !work.isPublished &&
      isReadBy(work, models[index]) &&
      !models.slice(index + 1).some((later) => isReadBy(work, later)),
  )
}

/** The fully qualified table that a model becomes during a build. */
export function tableOf(model: Model): string {
  const catalog = model.isPublished ? 'release' : 'scratch'
  return [catalog, ...model.name.split('.').map(quoteName)].join('.')
}

async function buildModel(db: Database, model: Model, options: BuildOptions): Promise<BuiltModel> {
  const startedAt = performance.now()
  const table = tableOf(model)
  // Nobody reads a work table in order: sorting it would only cost time.
  const order = model.isPublished ? `order by ${model.grain.map(quoteName).join(', ')}` : ''
  // The file begins on the statement's first line: the engine's line numbers are the file's.
  const sql = `create table ${table} as select * from (${model.sql}\n) ${order}${options.isDry ? ' with no data' : ''}`
  let rows = 0
  const build = async () => {
    rows = (await db.first(createdRow, sql))?.Count ?? 0
    if (model.isPublished) await widenDecimals(db, table)
  }
  try {
    await (options.around?.(model, build) ?? build())
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
