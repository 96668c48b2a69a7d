import {hash} from 'node:crypto'
import {rmSync, statSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {DEAL_ID} from '../contract/deal.ts'
import {STREAMS} from '../contract/streams.ts'
import {LoantapeError, messageOf} from '../core/errors.ts'
import {GENERATOR} from '../core/process.ts'
import type {Model, Moment, World} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {type Database, quoteLiteral, quoteName} from '../store/database.ts'
import {readHistoryId} from '../store/moment.ts'
import type {CheckOutcome, ReleaseManifest, ReleaseTable} from '../store/release.ts'
import {readRelease} from '../store/release.ts'
import {countRows} from '../store/sql.ts'
import {openHistoryFile} from '../store/warehouse.ts'
import {copyLastBuild, type LastBuild, readLastBuild, writeParquetFiles} from './build-folder.ts'
import {buildModels, changedPathOf, RELEASE_PATH, schemasOf, WholeBuildNeeded} from './build-models.ts'
import {requirePassed, runChecks} from './checks.ts'
import {compileModels} from './compile.ts'
import {type Build, countEach, filesOf, lanesOf, limitBuild, mayBecomeCurrent} from './prepare-build.ts'
import {planSelection, type SelectionPlan} from './sources.ts'

/** A build whose models are compiled. */
type PlannedBuild = Build & SelectionPlan

/** Tables that were built, and what from. */
interface BuiltTables extends SelectionPlan {
  models: ReleaseManifest['models']
  tables: ReleaseTable[]
  outcomes: CheckOutcome[]
  /** What the next build can start from, without the digests of its files. */
  next: Base['last']
}

/** A build that another one starts from. */
export interface Base {
  last: Omit<LastBuild, 'release_id' | 'files'>
  dir: string
  manifest: Omit<ReleaseManifest, 'models'>
  /** Whether its databases were copied unchanged. */
  isCopied: Promise<boolean>
}

/** Above this share of rebuilt deals, a whole build is cheaper. */
const MOST_REBUILT = {auto: 0.2, incremental: 1, whole: 0}

/** Below this size, a whole build is faster than starting from the last one. */
const GO_ON_BYTES = 8_000_000

/**
 * Compiles, builds, checks and writes the tables of a release, or those that were asked for. If the last build had the same models
 * and the history has only grown since, only changed deals are built; the resulting tables are the same.
 *
 * @param how `base` is the build to start from, by default the last one, if possible; `onChecked` gets what the checks found,
 * before they stop the build
 * @throws CheckError when a model or check fails
 */
export async function buildTables(
  folder: DataFolder,
  prepared: Build,
  world: World,
  how: {base?: Base | undefined; onChecked?: (outcomes: CheckOutcome[]) => void},
): Promise<BuiltTables> {
  const {sources, request} = prepared
  world.onProgress({step: 'compiling'})
  const whole = await compileModels(sources, world)
  const source = {...prepared, ...planSelection(whole, sources.checks, request.select ?? world.select)}
  world.onStep('models compiled')
  const {base = findBase(folder, prepared, world), onChecked = () => undefined} = how
  const built = base && (await goOn(source, base, world, onChecked))
  return built ?? (await build(source, undefined, world, onChecked))
}

/** Digest of what a release depends on besides history and moment. */
function inputsOf({config, fingerprint, identity}: Build): string {
  const {timeZone, dayCutoff} = config
  return hash('sha256', [fingerprint, identity.engine, GENERATOR, timeZone, dayCutoff].join('\n'))
}

/** Whether the next build may start from this one. */
export function isBase({request, config, dir}: Build): boolean {
  const isLarge = config.build === 'auto' && statSync(filesOf(dir).history).size >= GO_ON_BYTES
  return mayBecomeCurrent(request) && (isLarge || config.build === 'incremental')
}

/** The last build, if this one can start from it; its files are copied in the background. */
function findBase(folder: DataFolder, source: Build, world: World): Base | undefined {
  const {moment, dir} = source
  const last = isBase(source) ? readLastBuild(folder) : undefined
  const isForward =
    last?.inputs === inputsOf(source) &&
    last.moment.asOf <= moment.asOf &&
    last.moment.knownAt <= moment.knownAt
  const release = isForward ? readRelease(join(folder.releases, last.release_id)) : undefined
  if (!last || !release) return undefined
  const isCopied = copyLastBuild(folder, last, filesOf(dir)).catch((error: unknown) => {
    world.log.info({reason: messageOf(error)}, 'the last build could not be copied')
    return false
  })
  return {last, dir: release.dir, manifest: release.manifest, isCopied}
}

/** Errors that an unreadable file of the last build causes; a wrong model can cause them too. */
const MAY_BE_THE_FILE = ['MODEL_BUILD', 'CHECK_SQL']

/** Undefined if everything must be built: a shared model has changed, or the last build is unreadable. */
async function goOn(
  source: PlannedBuild,
  before: Base,
  world: World,
  onChecked: (outcomes: CheckOutcome[]) => void,
): Promise<BuiltTables | undefined> {
  try {
    return await build(source, before, world, onChecked)
  } catch (error) {
    await before.isCopied
    const isOther = error instanceof LoantapeError && !MAY_BE_THE_FILE.includes(error.code)
    if (isOther) throw error
    world.log.info({reason: messageOf(error)}, 'building whole: could not start from the last build')
    return undefined
  }
}

async function build(
  source: PlannedBuild,
  before: Base | undefined,
  world: World,
  onChecked: (outcomes: CheckOutcome[]) => void,
): Promise<BuiltTables> {
  const {config, moment, plan, checks, dir, dropped} = source
  const {timeZone, dayCutoff} = config
  const files = filesOf(dir)
  if (!before) for (const file of [files.database, files.work]) rmSync(file, {force: true})
  await using db = await openHistoryFile(files.history, {lanes: lanesOf(config)})
  const limited = await limitBuild(
    db,
    config,
    {spillDir: files.spill, historyBytes: statSync(files.history).size},
    world,
  )
  const rebuilt = before ? await attachWhatChanged(db, source, before) : 0
  // A crashed build is deleted, so it needs no write-ahead log.
  await db.run(`attach ${quoteLiteral(files.database)} as release (recovery_mode no_wal_writes)`)
  const counted = (step: string, total: number) => countEach(limited, {step, total}, world)
  const {models, shared} = await buildModels(
    db,
    plan,
    {...moment, timeZone, dayCutoff},
    {
      around: counted('models', plan.models.length),
      work: files.work,
      before: before?.last.shared,
    },
  )
  world.onStep('models built')
  const outcomes = await runChecks(db, checks, {
    around: counted('checks', checks.length),
    aroundAll: limited,
    changed: before && {
      path: changedPathOf(plan.models),
      wholePath: RELEASE_PATH,
      failed: before.manifest.checks.results.map(({name}) => name),
    },
  })
  onChecked(outcomes)
  requirePassed(outcomes)
  world.onStep('checks passed')
  for (const name of dropped) await db.run(`drop table release.${name}`)
  const written = plan.models
    .filter(({name, isPublished}) => isPublished && !dropped.includes(name))
    .map(({name, order, isPerDeal}) => ({name, order, isStored: !before || !isPerDeal}))
  const tables = await writeParquetFiles(db, dir, written, counted('tables', written.length))
  await db.run('use memory.main; checkpoint release; detach release; detach history')
  const next = {
    moment,
    history_id: source.identity.history_id,
    inputs: inputsOf(source),
    shared,
    rebuilt,
    whole_at: before?.last.whole_at ?? new Date(world.realClock.now()).toISOString(),
  }
  return {plan, checks, dropped, models, tables, outcomes, next}
}

/**
 * Attaches what changed since the last build.
 *
 * @returns the share of deals that were rebuilt since the last whole build
 * @throws WholeBuildNeeded if every model must be built whole
 */
async function attachWhatChanged(
  db: Database,
  {config, moment, plan}: PlannedBuild,
  {last, manifest, isCopied}: Base,
): Promise<number> {
  const {historyId} = await readHistoryId(db, last.moment.knownAt)
  if (historyId !== last.history_id) throw new WholeBuildNeeded('history')
  if (!(await doWalksFollow(db, last.moment, moment))) throw new WholeBuildNeeded('walks')
  const changed = await attachChanged(db, plan.models, last.moment, moment)
  const rebuilt = last.rebuilt + changed / Math.max(1, manifest.source.present.deals)
  if (rebuilt > MOST_REBUILT[config.build]) throw new WholeBuildNeeded('rebuilt')
  if (!(await isCopied)) throw new WholeBuildNeeded('files')
  return rebuilt
}

/** The deal column of each raw table; tables without one belong to no deal. */
export const DEAL_COLUMNS: Readonly<Record<string, string>> = {
  ...Object.fromEntries(STREAMS.map(({name, parent}) => [`${name}_version`, parent?.column ?? DEAL_ID])),
  deal_confirmation: DEAL_ID,
  deal_extra: DEAL_ID,
  listing: 'parent_id',
  quarantine: 'record_id',
}

/** SQL: whether a row counts at a moment. */
function counts(row: string, {asOf, knownAt}: Moment): string {
  return `(${row}.business_date <= date ${quoteLiteral(asOf)} and ${row}.recorded_at <= timestamp ${quoteLiteral(knownAt)})`
}

/** SQL: whether a row counts now and did not before; a later moment never hides a row. */
function countsNew(row: string, before: Moment, now: Moment): string {
  return `${counts(row, now)} and not coalesce(${counts(row, before)}, false)`
}

/**
 * Whether a deal without a new row is certain to be unchanged since a moment: every walk added since then ended, and was stored,
 * after everything that counted then.
 */
async function doWalksFollow(db: Database, before: Moment, now: Moment): Promise<boolean> {
  const {follow} = await db.one(
    z.object({follow: z.boolean()}),
    `with known as (
       select observed_at, recorded_at from history.raw.deal_version as version where ${counts('version', before)}
       union all
       select observed_at, recorded_at from history.raw.quarantine as record where ${counts('record', before)}
     ),
     added as (
       select min(coalesce(ended_at, started_at)) as ended_at, min(recorded_at) as recorded_at
       from history.raw.walk as walk
       where state = 'applied' and ${countsNew('walk', before, now)}
     )
     select coalesce(
       (select ended_at from added) >= (select max(observed_at) from known)
       and (select recorded_at from added) >= (select max(recorded_at) from known),
       true
     ) as follow`,
  )
  return follow
}

/**
 * Attaches the database `changed`: `main.deal` holds the deals with a row visible at only one of the two moments, the schema
 * `raw` all raw rows of those deals. The schemas of models `per: deal_id` exist but are empty.
 *
 * @returns the number of those deals
 */
async function attachChanged(
  db: Database,
  models: readonly Model[],
  before: Moment,
  now: Moment,
): Promise<number> {
  const schemas = ['raw', ...schemasOf(models)]
  await db.run(`attach ':memory:' as changed`)
  for (const schema of schemas) await db.run(`create schema changed.${quoteName(schema)}`)
  const tables = Object.entries(DEAL_COLUMNS)
  const parts = tables.map(([table, column]) =>
    table === 'listing'
      ? `select listing.${column} as ${DEAL_ID} from history.raw.listing as listing
         join history.raw.walk as walk on walk.walk_id = listing.walk_id
         where ${countsNew('walk', before, now)}`
      : `select ${column} as ${DEAL_ID} from history.raw.${table} as version where ${countsNew('version', before, now)}`,
  )
  await db.run(
    `create table changed.main.deal as select distinct ${DEAL_ID} from (${parts.join(' union all ')}) where ${DEAL_ID} is not null`,
  )
  for (const [table, column] of tables) {
    await db.run(
      `create table changed.raw.${table} as from history.raw.${table} where ${column} in (select ${DEAL_ID} from changed.main.deal)`,
    )
  }
  return await countRows(db, 'changed.main.deal')
}
