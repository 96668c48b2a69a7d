import {hash} from 'node:crypto'
import {constants, rmSync, statSync} from 'node:fs'
import {chmod, copyFile} from 'node:fs/promises'
import {availableParallelism} from 'node:os'
import {join} from 'node:path'
import {z} from 'zod'
import {DEAL_ID} from '../contract/deal.ts'
import {STREAMS} from '../contract/streams.ts'
import type {Config} from '../core/config.ts'
import {LoantapeError, messageOf, newError} from '../core/errors.ts'
import {GENERATOR} from '../core/process.ts'
import type {Check, Model, Moment, World} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {
  type Cut,
  type Database,
  mostMemoryMb,
  quoteLiteral,
  quoteName,
  threadsFor,
  withinLimits,
} from '../store/database.ts'
import {readHistoryId, readSourceBridge, resolveMoment} from '../store/moment.ts'
import {tellWentOn} from '../store/recorded.ts'
import {
  type CheckOutcome,
  databasesOf,
  type Release,
  type ReleaseDatabases,
  type ReleaseManifest,
  type ReleaseTable,
  readRelease,
} from '../store/release.ts'
import {countRows, fillIn, readQuery} from '../store/sql.ts'
import {openStateDb} from '../store/state-db.ts'
import {copyHistory, openHistory, openHistoryFile} from '../store/warehouse.ts'
import {listKnownFields} from '../sync/mapped-fields.ts'
import {
  createBuildFolder,
  discardBuild,
  type LastBuild,
  readLastBuild,
  stampOf,
  type TableFile,
  writeParquetFiles,
} from './build-folder.ts'
import {
  buildModels,
  changedPathOf,
  fingerprintModels,
  RELEASE_PATH,
  schemasOf,
  WholeBuildNeeded,
} from './build-models.ts'
import {requirePassed, runChecks} from './checks.ts'
import {compileModels, type ModelSource} from './compile.ts'
import {planSelection, readSources, type SelectionPlan} from './sources.ts'

/** Which release to build. */
export interface BuildRequest {
  /** `YYYY-MM-DD`; the latest business date by default. */
  asOf?: string | undefined
  /** `YYYY-MM-DD HH:MM:SS[.ssssss]`, UTC; by default the last apply that stored something new. */
  knownAt?: string | undefined
  /** Also write the DuckDB file here. */
  out?: string | undefined
  /** Only these models, into the scratch release: see `selectModels`. */
  select?: string | undefined
}

/** A release to build: from what, for which moment, and where. */
export interface Build {
  config: Config
  request: BuildRequest
  sources: ModelSource
  moment: Moment
  /** The part of the manifest that is known before building. */
  identity: Omit<ReleaseManifest, 'checks' | 'models' | 'tables'>
  /** Digest of models, checks and seeds. */
  fingerprint: string
  /** The folder of the build, with a copy of the warehouse so that nobody waits while models run. */
  dir: string
  /** Whether the warehouse is certain to hold what was copied. */
  isHistorySame: () => boolean
}

/** The files of a build, including those that a release does not keep. */
export function filesOf(dir: string): ReleaseDatabases & {history: string; spill: string} {
  return {...databasesOf(dir), history: join(dir, 'history.duckdb'), spill: join(dir, 'spill')}
}

/** Whether a release is to become the current one. */
export function mayBecomeCurrent({asOf, knownAt, select}: BuildRequest): boolean {
  return asOf === undefined && knownAt === undefined && select === undefined
}

/**
 * Reads from the warehouse what a build needs, and copies it; an existing release needs no build.
 *
 * @param aside builds it even if it exists, in a folder with this suffix
 */
export async function prepareBuild(
  folder: DataFolder,
  config: Config,
  request: BuildRequest,
  {today, aside}: {today: string; aside?: string},
): Promise<
  {moment: Moment} & ({existing: Release; build?: undefined} | {existing?: undefined; build: Build})
> {
  await using db = await openHistory(folder)
  const moment = await resolveMoment(db, request, today)
  const sources = readSources(config, await listKnownFields(db, 'history'), moment.asOf)
  const {engine} = await db.one(z.object({engine: z.string()}), 'select version() as engine')
  const {historyId, tapeHead} = await readHistoryId(db, moment.knownAt)
  const fingerprint = fingerprintModels(sources.models, sources.checks, sources.seeds)
  const {timeZone, dayCutoff} = config
  // Everything a release is a function of: the same inputs have the same id, on every machine.
  const inputs = [moment.asOf, moment.knownAt, historyId, timeZone, dayCutoff, fingerprint, engine, GENERATOR]
  const releaseId = `${moment.asOf}-${hash('sha256', inputs.join('\n')).slice(0, 12)}`
  const existing =
    request.select === undefined && aside === undefined
      ? readRelease(join(folder.releases, releaseId))
      : undefined
  if (existing) return {moment, existing}
  const source = await readSourceBridge(db, moment)
  using stateDb = openStateDb(folder.stateDb)
  const identity: Build['identity'] = tellWentOn(stateDb, {
    schema_version: 1,
    generator: GENERATOR,
    engine: `DuckDB ${engine}`,
    release_id: releaseId,
    as_of: moment.asOf,
    known_at: `${moment.knownAt.replace(' ', 'T')}Z`,
    history_id: historyId,
    tape_head: tapeHead,
    observed_until: source.business_date,
    currency: 'USD',
    time_zone: timeZone,
    source,
  })
  const dir = await createBuildFolder(folder, aside === undefined ? releaseId : `${releaseId}-${aside}`)
  try {
    await copyHistory(folder, filesOf(dir).history)
    const stamp = () => stampOf(folder.warehouse, `${folder.warehouse}.wal`)
    const copied = stamp()
    const isHistorySame = () => stamp() === copied
    return {moment, build: {config, request, sources, moment, identity, fingerprint, dir, isHistorySame}}
  } catch (error) {
    discardBuild(dir)
    throw error
  }
}

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
  /** Without `files`, its databases are certain to be unchanged. */
  last: Omit<LastBuild, 'release_id' | 'files'> & {files?: string}
  dir: string
  manifest: Omit<ReleaseManifest, 'models'>
}

/** The moment of a release. */
export function momentOf({as_of, known_at}: Pick<ReleaseManifest, 'as_of' | 'known_at'>): Moment {
  return {asOf: as_of, knownAt: known_at.replace('T', ' ').replace('Z', '')}
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
  const {base = findBase(folder, prepared), onChecked = () => undefined} = how
  if (base) {
    try {
      return await build(source, base, world, onChecked)
    } catch (error) {
      // A shared model has changed, or the last build is unreadable.
      if (error instanceof LoantapeError && !MAY_BE_THE_FILE.includes(error.code)) throw error
      world.log.info({reason: messageOf(error)}, 'building whole: could not start from the last build')
    }
  }
  return await build(source, undefined, world, onChecked)
}

/** Errors that an unreadable file of the last build causes; a wrong model can cause them too. */
const MAY_BE_THE_FILE = ['MODEL_BUILD', 'CHECK_SQL']

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

/** The last build, if this one can start from it. */
function findBase(folder: DataFolder, source: Build): Base | undefined {
  const last = isBase(source) ? readLastBuild(folder) : undefined
  if (last?.inputs !== inputsOf(source)) return undefined
  const release = readRelease(join(folder.releases, last.release_id))
  if (!release) return undefined
  const {asOf, knownAt} = momentOf(release.manifest)
  const isForward = asOf <= source.moment.asOf && knownAt <= source.moment.knownAt
  return isForward ? {last, dir: release.dir, manifest: release.manifest} : undefined
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
  const whole_at = before?.last.whole_at ?? new Date(world.realClock.now()).toISOString()
  const next = {inputs: inputsOf(source), shared, rebuilt, whole_at}
  return {plan, checks, dropped, models, tables, outcomes, next}
}

/**
 * Attaches what changed since the last build, and copies its databases.
 *
 * @returns the share of deals that were rebuilt since the last whole build
 * @throws WholeBuildNeeded if every model must be built whole
 */
async function attachWhatChanged(
  db: Database,
  {config, moment, plan, dir}: PlannedBuild,
  {last, dir: lastDir, manifest}: Base,
): Promise<number> {
  const before = momentOf(manifest)
  const {historyId} = await readHistoryId(db, before.knownAt)
  if (historyId !== manifest.history_id) throw new WholeBuildNeeded('history')
  if (!(await doWalksFollow(db, before, moment))) throw new WholeBuildNeeded('walks')
  const changed = await attachChanged(db, plan.models, before, moment)
  const rebuilt = last.rebuilt + changed / Math.max(1, manifest.source.present.deals)
  if (rebuilt > MOST_REBUILT[config.build]) throw new WholeBuildNeeded('rebuilt')
  const from = databasesOf(lastDir)
  if (last.files !== undefined && last.files !== stampOf(from.database, from.work))
    throw new WholeBuildNeeded('files')
  const to = filesOf(dir)
  for (const name of ['database', 'work'] as const) {
    await copyFile(from[name], to[name], constants.COPYFILE_FICLONE)
    await chmod(to[name], 0o600)
  }
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
  const sql = fillIn(readQuery('walks_follow'), {
    version_counted: counts('version', before),
    record_counted: counts('record', before),
    walk_is_new: countsNew('walk', before, now),
  })
  return await db.value(z.boolean(), sql)
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

/** The least memory per thread, by the engine's documentation. */
const THREAD_MB = 125

/** Enough for a million deals; given more, the engine takes more and is no faster. */
const ENOUGH_MB = 3000

/** Memory per lane; more lanes than these gain little. */
const LANE_MB = 1000
const MOST_LANES = 3

/** What a build works on: a model, a check, or the file of a table. */
type Subject = Model | Check | TableFile

/** Runs the work of one model, check or file within the limits of a build. */
type Limited = <T>(subject: Subject, work: () => Promise<T>, lane: Database) => Promise<T>

/**
 * Sets the engine's memory limit and spill folder, and limits the time of each model, check or file.
 *
 * @param build `spillDir` is a folder used by this build only, `historyBytes` the size of what it reads
 */
export async function limitBuild(
  db: Database,
  config: Pick<Config, 'memoryMb' | 'modelTimeoutSeconds'>,
  {spillDir, historyBytes}: {spillDir: string; historyBytes: number},
  world: World,
): Promise<Limited> {
  await db.run(`set temp_directory = ${quoteLiteral(spillDir)}`)
  const memoryMb = memoryFor(config)
  const threads = Math.min(threadsFor(historyBytes), Math.max(1, Math.floor(memoryMb / THREAD_MB)))
  await db.run(`set memory_limit = '${memoryMb}MB'; set threads = ${threads}`)
  const limits = {limitMs: config.modelTimeoutSeconds * 1000, signal: world.signal}
  return (subject, work, lane) =>
    withinLimits(lane, limits, work, (cut, cause) => describeCut(subject, config, cut, cause))
}

/** Reports how many models, checks or files of a step are done. */
function countEach(
  limited: Limited,
  {step, total}: {step: string; total: number},
  world: Pick<World, 'onProgress'>,
): Limited {
  let done = 0
  const report = () => world.onProgress({step, unit: step, done, total})
  report()
  return async (subject, work, lane) => {
    const result = await limited(subject, work, lane)
    done += 1
    report()
    return result
  }
}

/** How many models, checks or files are worked on at once. */
function lanesOf(config: Pick<Config, 'memoryMb'>): number {
  return Math.max(1, Math.min(availableParallelism(), MOST_LANES, Math.floor(memoryFor(config) / LANE_MB)))
}

/** The memory of a build in megabytes: as configured, else {@link ENOUGH_MB} or what the machine has, if that is less. */
function memoryFor(config: Pick<Config, 'memoryMb'>): number {
  return config.memoryMb ?? Math.floor(Math.min(ENOUGH_MB, mostMemoryMb()))
}

function describeCut(
  subject: Subject,
  config: Pick<Config, 'memoryMb' | 'modelTimeoutSeconds'>,
  cut: Cut,
  cause: unknown,
): Error {
  const {name, file} = subject
  const kind = 'grain' in subject ? 'Model' : 'severity' in subject ? 'Check' : 'Table'
  const what = `${kind} '${name}' in ${file}`
  const cuts = {
    stopped: [
      'BUILD_STOPPED',
      `The build was asked to stop: ${kind.toLowerCase()} '${name}' was interrupted.`,
    ],
    time: [
      'BUILD_TIMEOUT',
      `${what} took longer than ${config.modelTimeoutSeconds} s and was interrupted: expected it to end within that time.`,
    ],
    memory: [
      'BUILD_MEMORY',
      `${what} needs more than ${memoryFor(config)} MB of memory, even with spilling: expected it to fit into LOANTAPE_MEMORY_MB.`,
    ],
  } as const
  const [code, problem] = cuts[cut]
  return newError(code, problem, {cause})
}
