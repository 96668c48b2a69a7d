import {hash} from 'node:crypto'
import {availableParallelism} from 'node:os'
import {join} from 'node:path'
import {z} from 'zod'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {GENERATOR} from '../core/process.ts'
import type {Check, Model, Moment, World} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {
  type Cut,
  type Database,
  mostMemoryMb,
  quoteLiteral,
  threadsFor,
  withinLimits,
} from '../store/database.ts'
import {readHistoryId, readSourceBridge, resolveMoment} from '../store/moment.ts'
import {tellWentOn} from '../store/recorded.ts'
import {
  databasesOf,
  type Release,
  type ReleaseDatabases,
  type ReleaseManifest,
  readRelease,
} from '../store/release.ts'
import {openStateDb} from '../store/state-db.ts'
import {copyHistory, openHistory} from '../store/warehouse.ts'
import {listKnownFields} from '../sync/mapped-fields.ts'
import {createBuildFolder, discardBuild, stampOf, type TableFile} from './build-folder.ts'
import {fingerprintModels} from './build-models.ts'
import type {ModelSource} from './compile.ts'
import {readSources} from './sources.ts'

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
export function countEach(
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
export function lanesOf(config: Pick<Config, 'memoryMb'>): number {
  return Math.max(1, Math.min(availableParallelism(), MOST_LANES, Math.floor(memoryFor(config) / LANE_MB)))
}

/** The memory of a build in megabytes: as configured, else {@link ENOUGH_MB} or what the machine has, if that is less. */
function memoryFor(config: Pick<Config, 'memoryMb'>): number {
  return config.memoryMb ?? Math.floor(Math.min(ENOUGH_MB, mostMemoryMb()))
}

function kindOf(subject: Subject): string {
  if ('grain' in subject) return 'Model'
  return 'severity' in subject ? 'Check' : 'Table'
}

function describeCut(
  subject: Subject,
  config: Pick<Config, 'memoryMb' | 'modelTimeoutSeconds'>,
  cut: Cut,
  cause: unknown,
): Error {
  const kind = kindOf(subject)
  const what = `${kind} '${subject.name}' in ${subject.file}`
  if (cut === 'stopped') {
    return newError(
      'BUILD_STOPPED',
      `The build was asked to stop: ${kind.toLowerCase()} '${subject.name}' was interrupted.`,
      {cause},
    )
  }
  if (cut === 'time') {
    return newError(
      'BUILD_TIMEOUT',
      `${what} took longer than ${config.modelTimeoutSeconds} s and was interrupted: expected it to end within that time.`,
      {cause},
    )
  }
  return newError(
    'BUILD_MEMORY',
    `${what} needs more than ${memoryFor(config)} MB of memory, even with spilling: expected it to fit into LOANTAPE_MEMORY_MB.`,
    {cause},
  )
}
