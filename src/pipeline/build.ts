import {copyFileSync, rmSync, statSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {listNeededReleases} from '../accounting/periods.ts'
import {requirePassed, runChecks} from '../check/run-checks.ts'
import {businessDateOf} from '../clock.ts'
import type {Config} from '../config.ts'
import {shareWithFolder} from '../file-mode.ts'
import {listKnownFields} from '../load/mapped-fields.ts'
import {buildModels, fingerprintModels} from '../model/build-models.ts'
import {compileModels} from '../model/compile-models.ts'
import {
  createBuildFolder,
  discardBuild,
  moveCurrent,
  publishRelease,
  publishScratch,
  releaseIdOf,
  shareFiles,
  writeParquetFiles,
} from '../release/build-folder.ts'
import {findCurrentRelease, type Release, readRelease, requireRelease} from '../release/manifest.ts'
import {type Moment, readHistoryId, readSourceBridge, resolveMoment} from '../release/moment.ts'
import {markPast, noteUse, pruneReleases} from '../release/surplus.ts'
import type {CheckOutcome, ReleaseManifest} from '../release-manifest.ts'
import {storeChecking} from '../state/checkings.ts'
import {openStateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {GENERATOR} from '../version.ts'
import {moveIntoPlace} from '../warehouse/atomic-file.ts'
import {type DataFolder, dataFolderAt, requireOutFile} from '../warehouse/data-folder.ts'
import {quoteLiteral} from '../warehouse/database.ts'
import {copyHistory, openHistory, openHistoryCopy} from '../warehouse/history.ts'
import {countEach, lanesOf, limitBuild} from './limits.ts'
import {planSelection, readSources, type Sources} from './sources.ts'

/** Which release to build. */
export interface BuildRequest {
  /** `YYYY-MM-DD`; the latest business date by default. */
  asOf?: string | undefined
  /** `YYYY-MM-DD HH:MM:SS[.ssssss]`, UTC; by default the last apply that told something new. */
  knownAt?: string | undefined
  /** Also write the DuckDB file here. */
  out?: string | undefined
  /** Only these models, into the scratch release: see `selectModels`. */
  select?: string | undefined
}

/** What a build came to. */
export interface BuildResult {
  outcome: 'released' | 'unchanged'
  release_id: string
  as_of: string
  known_at: string
  dir: string
  /** Whether `current` points to it. */
  is_current: boolean
  /** Whether it holds a selection of models only. */
  is_scratch: boolean
  checks: {passed: number; warned: number}
  models: ReleaseManifest['models']
}

/** A release that is to be built: what of, for when, and where. */
interface Build {
  config: Config
  request: BuildRequest
  sources: Sources
  moment: Moment
  /** What the manifest says before anything is built. */
  identity: Omit<ReleaseManifest, 'checks' | 'models' | 'tables'>
  /** The folder it is built in, with a copy of the warehouse: nobody waits while models run. */
  dir: string
}

/**
 * Builds every model into a new release, checks it and only then gives it its name; only a plain build moves
 * `current`, and never behind what a sync has told meanwhile. A release that is there already is not built again. With
 * `select` the models named are built into the scratch release.
 *
 * @throws CheckError when a model or check fails: nothing was released; DeferredError `BUILD_STOPPED`; ConfigError
 * `OUT_FOLDER`, `OUT_FILE`
 */
export async function buildRelease(
  config: Config,
  request: BuildRequest,
  world: World,
): Promise<BuildResult> {
  const folder = dataFolderAt(config.dataDir)
  const out = request.out === undefined ? undefined : requireOutFile(folder, request.out)
  const today = businessDateOf(world.clock.now(), config)
  world.onProgress({step: 'preparing'})
  const {moment, build, existing} = await prepareBuild(folder, config, request, today)
  const release = existing ?? (await buildAnew(folder, build, world))
  const {release_id, known_at, checks, models} = release.manifest
  noteUse(release.dir, isPlain(request), new Date(world.realClock.now()))
  const isCurrent = () => findCurrentRelease(folder)?.manifest.release_id === release_id
  const isMoved = isPlain(request) && !isCurrent() && (await isLatestMoment(folder, moment, today))
  if (isMoved) {
    moveCurrent(folder, release.dir)
    world.onStep('current moved')
  }
  if (existing === undefined || isMoved) {
    using stateDb = openStateDb(folder.stateDb)
    const pruned = pruneReleases(folder, config, listNeededReleases(stateDb))
    world.log.info({release_id, count: pruned.length}, 'released; count releases pruned')
  }
  if (out !== undefined) copyRelease(release.database, out)
  return {
    outcome: existing === undefined || isMoved ? 'released' : 'unchanged',
    release_id,
    as_of: moment.asOf,
    known_at,
    dir: release.dir,
    is_current: request.select === undefined && isCurrent(),
    is_scratch: request.select !== undefined,
    checks: {passed: checks.passed, warned: checks.warned},
    models,
  }
}

/** Builds the release of a date, where it is not there yet, and reads it. */
export async function requireBuilt(
  config: Config,
  moment: {asOf: string; knownAt?: string | undefined},
  world: World,
): Promise<Release> {
  const {release_id} = await buildRelease(config, moment, world)
  return requireRelease(dataFolderAt(config.dataDir), release_id)
}

/** Whether a release is to become the current one. */
function isPlain({asOf, knownAt, select}: BuildRequest): boolean {
  return asOf === undefined && knownAt === undefined && select === undefined
}

/** Reads from the warehouse what a build needs, and copies it; a release that is there already needs no build. */
async function prepareBuild(
  folder: DataFolder,
  config: Config,
  request: BuildRequest,
  today: string,
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
  const releaseId = releaseIdOf({...moment, historyId, timeZone, dayCutoff, fingerprint, engine})
  const existing = request.select === undefined ? readRelease(join(folder.releases, releaseId)) : undefined
  if (existing) return {moment, existing}
  const source = await readSourceBridge(db, moment)
  const identity: Build['identity'] = {
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
  }
  const dir = await createBuildFolder(folder, releaseId)
  try {
    await copyHistory(folder, join(dir, HISTORY))
    return {moment, build: {config, request, sources, moment, identity, dir}}
  } catch (error) {
    discardBuild(dir)
    throw error
  }
}

/** The copy of the warehouse in the folder of a build. */
const HISTORY = 'history.duckdb'

/** Whether no sync has told anything new since: then its own release is to be the current one, not an older. */
async function isLatestMoment(folder: DataFolder, moment: Moment, today: string): Promise<boolean> {
  await using db = await openHistory(folder)
  const {asOf, knownAt} = await resolveMoment(db, {}, today)
  return asOf === moment.asOf && knownAt === moment.knownAt
}

async function buildAnew(folder: DataFolder, build: Build, world: World): Promise<Release> {
  const {config, request, sources, moment, identity, dir: buildDir} = build
  const {timeZone, dayCutoff} = config
  const history = join(buildDir, HISTORY)
  const spillDir = join(buildDir, 'spill')
  try {
    world.onStep('history copied')
    world.onProgress({step: 'compiling'})
    const whole = await compileModels(sources, world, {dir: folder.cache, engine: identity.engine})
    const {plan, checks, dropped} = planSelection(whole, sources.checks, request.select)
    world.onStep('models compiled')
    await using db = await openHistoryCopy(history, {lanes: lanesOf(config)})
    const limited = await limitBuild(db, config, {spillDir, historyBytes: statSync(history).size}, world)
    // What dies is thrown away: no log is needed to recover it.
    const file = quoteLiteral(join(buildDir, 'portfolio.duckdb'))
    const format = config.releaseStorage === 'latest' ? ", storage_version 'latest'" : ''
    await db.run(`attach ${file} as release (recovery_mode no_wal_writes${format})`)
    const counted = (step: string, total: number) => countEach(limited, {step, total}, world)
    const around = counted('models', plan.models.length)
    const models = await buildModels(db, plan, {...moment, timeZone, dayCutoff}, {around})
    world.onStep('models built')
    const outcomes = await runChecks(db, checks, counted('checks', checks.length))
    recordChecking(folder, build, outcomes, world)
    requirePassed(outcomes)
    world.onStep('checks passed')
    for (const name of dropped) await db.run(`drop table release.${name}`)
    const written = counted('tables', models.length - dropped.length)
    const tables = await writeParquetFiles(db, buildDir, written)
    await shareFiles(buildDir, tables, findCurrentRelease(folder))
    world.onProgress({step: 'publishing'})
    await db.run('use memory.main; checkpoint release; detach release; detach history')
    for (const path of [spillDir, history, `${history}.wal`]) rmSync(path, {recursive: true, force: true})
    world.onStep('tables written')
    const manifest: ReleaseManifest = {
      ...identity,
      checks: summariseChecks(outcomes),
      models: models.filter(({name}) => !dropped.includes(name)),
      tables,
    }
    if (!isPlain(request) && request.select === undefined) markPast(buildDir)
    const publish = request.select === undefined ? publishRelease : publishScratch
    const dir = await publish(folder, buildDir, manifest)
    world.onStep('release published')
    return {dir, database: join(dir, 'portfolio.duckdb'), manifest}
  } catch (error) {
    discardBuild(buildDir)
    throw error
  }
}

function summariseChecks(outcomes: readonly CheckOutcome[]): ReleaseManifest['checks'] {
  const warned = outcomes.filter(({severity, failures}) => severity === 'warn' && failures > 0)
  return {
    passed: outcomes.length - warned.length,
    warned: warned.length,
    results: warned.map(({name, severity, failures, samples}) => ({name, severity, failures, samples})),
  }
}

/** Keeps what the checks found, also where it lets nothing be released. */
function recordChecking(
  folder: DataFolder,
  {identity, request}: Build,
  outcomes: CheckOutcome[],
  world: World,
): void {
  using stateDb = openStateDb(folder.stateDb)
  const checking = {
    release_id: identity.release_id,
    checked_at: new Date(world.realClock.now()).toISOString(),
    checks: outcomes.length,
    failed: outcomes.filter(({failures}) => failures > 0),
  }
  storeChecking(stateDb, checking, isPlain(request))
}

function copyRelease(database: string, out: string): void {
  const temporary = `${out}.tmp-${process.pid}`
  copyFileSync(database, temporary)
  shareWithFolder(temporary)
  moveIntoPlace(temporary, out)
}
