import {copyFileSync, rmSync, statSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {requirePassed, runChecks} from '../check/run-checks.ts'
import {businessDateOf} from '../clock.ts'
import type {Config} from '../config.ts'
import {shareWithFolder} from '../file-mode.ts'
import {storeChecking} from '../ledger/checkings.ts'
import {openLedger} from '../ledger/ledger.ts'
import {listNeededReleases} from '../ledger/periods.ts'
import {listKnownFields} from '../load/mapped-fields.ts'
import {buildModels, fingerprintModels} from '../model/build-models.ts'
import {compileModels} from '../model/compile-models.ts'
import {findCurrentRelease, type Release, readRelease} from '../release/manifest.ts'
import {type Moment, readHistoryId, readSourceBridge, resolveMoment} from '../release/moment.ts'
import {markPast, noteUse} from '../release/past.ts'
import {pruneReleases, type ReleaseRetention} from '../release/prune.ts'
import {
  createBuildFolder,
  discardBuild,
  moveCurrent,
  publishRelease,
  publishScratch,
  releaseIdOf,
  writeParquetFiles,
} from '../release/publish.ts'
import type {CheckOutcome, ReleaseManifest} from '../release-manifest.ts'
import type {World} from '../types.ts'
import {GENERATOR} from '../version.ts'
import {moveIntoPlace} from '../warehouse/atomic-file.ts'
import {type DataFolder, dataFolderAt, requireOutFile} from '../warehouse/data-folder.ts'
import {quoteLiteral} from '../warehouse/database.ts'
import {copyHistory, openHistory, openHistoryCopy} from '../warehouse/history.ts'
import {limitBuild} from './limits.ts'
import {planSelection} from './selection.ts'
import {readSources, type Sources} from './sources.ts'

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

/** One build: what is built, from what, and for when. */
interface Build {
  folder: DataFolder
  config: Config
  sources: Sources
  moment: Moment
  historyId: string
  tapeHead: string | null
  releaseId: string
  engine: string
  /** Whether the release is to become the current one. */
  isPlain: boolean
  select: string | undefined
}

/** What is built from: a copy of the warehouse, so that nobody waits while models run. */
interface BuildPlace {
  dir: string
  history: string
  source: ReleaseManifest['source']
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
  const {build, existing, place} = await prepareBuild(folder, config, request, today)
  const {releaseId, moment, isPlain} = build
  const release = existing ?? (await buildAnew(build, place, world))
  noteUse(release.dir, isPlain, new Date(world.realClock.now()))
  const isMoved =
    isPlain && !isCurrentRelease(folder, releaseId) && (await isLatestMoment(folder, moment, today))
  if (isMoved) {
    moveCurrent(folder, release.dir)
    world.onStep('current moved')
  }
  if (existing === undefined || isMoved) {
    const pruned = pruneReleases(folder, retentionOf(config), readNeededReleases(folder))
    world.log.info({release_id: releaseId, count: pruned.length}, 'released; count releases pruned')
  }
  if (out !== undefined) copyRelease(join(release.dir, 'portfolio.duckdb'), out)
  return {
    outcome: existing === undefined || isMoved ? 'released' : 'unchanged',
    release_id: releaseId,
    as_of: moment.asOf,
    known_at: release.manifest.known_at,
    dir: release.dir,
    is_current: request.select === undefined && isCurrentRelease(folder, releaseId),
    is_scratch: request.select !== undefined,
    checks: {passed: release.manifest.checks.passed, warned: release.manifest.checks.warned},
    models: release.manifest.models,
  }
}

/** Reads from the warehouse what a build needs; for one that is not there yet a folder with a copy of it. */
async function prepareBuild(
  folder: DataFolder,
  config: Config,
  request: BuildRequest,
  today: string,
): Promise<
  {build: Build} & ({existing: Release; place?: undefined} | {existing?: undefined; place: BuildPlace})
> {
  await using db = await openHistory(folder)
  const moment = await resolveMoment(db, request, today)
  const sources = readSources(config, await listKnownFields(db, 'history'), moment.asOf)
  const {engine} = await db.one(z.object({engine: z.string()}), 'select version() as engine')
  const {models, checks, seeds} = sources
  const {historyId, tapeHead} = await readHistoryId(db, moment.knownAt)
  const releaseId = releaseIdOf({
    ...moment,
    historyId,
    timeZone: config.timeZone,
    dayCutoff: config.dayCutoff,
    fingerprint: fingerprintModels(models, checks, seeds),
    engine,
  })
  const isPlain = request.asOf === undefined && request.knownAt === undefined && request.select === undefined
  const build = {
    folder,
    config,
    sources,
    moment,
    historyId,
    tapeHead,
    releaseId,
    engine,
    isPlain,
    select: request.select,
  }

  const existing = build.select === undefined ? readRelease(join(folder.releases, releaseId)) : undefined
  if (existing) return {build, existing}
  const source = await readSourceBridge(db, moment)
  const dir = await createBuildFolder(folder, releaseId)
  try {
    const history = join(dir, 'history.duckdb')
    await copyHistory(folder, history)
    return {build, place: {dir, history, source}}
  } catch (error) {
    discardBuild(dir)
    throw error
  }
}

/** How many releases the settings keep. */
export function retentionOf({releasesKept, pastReleasesKept}: Config): ReleaseRetention {
  return {kept: releasesKept, pastKept: pastReleasesKept}
}

function isCurrentRelease(folder: DataFolder, releaseId: string): boolean {
  return findCurrentRelease(folder)?.manifest.release_id === releaseId
}

/** Whether no sync has told anything new since: then its own release is to be the current one, not an older. */
async function isLatestMoment(folder: DataFolder, moment: Moment, today: string): Promise<boolean> {
  await using db = await openHistory(folder)
  const {asOf, knownAt} = await resolveMoment(db, {}, today)
  return asOf === moment.asOf && knownAt === moment.knownAt
}

function readNeededReleases(folder: DataFolder): Set<string> {
  using ledger = openLedger(folder.ledger)
  return listNeededReleases(ledger)
}

async function buildAnew(
  build: Build,
  {dir: buildDir, history, source}: BuildPlace,
  world: World,
): Promise<Release> {
  const {folder, config, sources, moment, historyId, tapeHead, releaseId, select} = build
  world.onProgress({step: 'building', pages: 0, records: 0, expected: null, waitedMs: 0, isWaiting: false})
  const spillDir = join(buildDir, 'spill')
  try {
    world.onStep('history copied')
    const whole = await compileModels(sources, world)
    const {plan, checks, dropped} =
      select === undefined
        ? {plan: whole, checks: sources.checks, dropped: []}
        : planSelection(whole, sources.checks, select)
    world.onStep('models compiled')
    await using db = await openHistoryCopy(history)
    const limited = await limitBuild(db, config, {spillDir, historyBytes: statSync(history).size}, world)
    // What dies is thrown away: no log is needed to recover it.
    const file = quoteLiteral(join(buildDir, 'portfolio.duckdb'))
    await db.run(`attach ${file} as release (recovery_mode no_wal_writes)`)
    const built = await buildModels(
      db,
      plan,
      {...moment, timeZone: config.timeZone, dayCutoff: config.dayCutoff},
      {around: limited},
    )
    world.onStep('models built')
    const outcomes = await runChecks(db, checks, limited)
    recordChecking(build, outcomes, world)
    requirePassed(outcomes)
    world.onStep('checks passed')
    for (const name of dropped) await db.run(`drop table release.${name}`)
    const tables = await writeParquetFiles(db, buildDir, releaseId, limited)
    await db.run('use memory.main; checkpoint release; detach release; detach history')
    for (const path of [spillDir, history, `${history}.wal`]) rmSync(path, {recursive: true, force: true})
    world.onStep('tables written')
    const manifest: ReleaseManifest = {
      schema_version: 1,
      generator: GENERATOR,
      engine: `DuckDB ${build.engine}`,
      release_id: releaseId,
      as_of: moment.asOf,
      known_at: `${moment.knownAt.replace(' ', 'T')}Z`,
      history_id: historyId,
      tape_head: tapeHead,
      observed_until: source.business_date,
      currency: 'USD',
      time_zone: config.timeZone,
      source,
      checks: summariseChecks(outcomes),
      models: built.filter(({name}) => !dropped.includes(name)),
      tables,
    }
    if (!build.isPlain && select === undefined) markPast(buildDir)
    const publish = select === undefined ? publishRelease : publishScratch
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
function recordChecking({folder, releaseId, isPlain}: Build, outcomes: CheckOutcome[], world: World): void {
  using ledger = openLedger(folder.ledger)
  const checking = {
    release_id: releaseId,
    checked_at: new Date(world.realClock.now()).toISOString(),
    checks: outcomes.length,
    failed: outcomes.filter(({failures}) => failures > 0),
  }
  storeChecking(ledger, checking, isPlain)
}

function copyRelease(database: string, out: string): void {
  const temporary = `${out}.tmp-${process.pid}`
  copyFileSync(database, temporary)
  shareWithFolder(temporary)
  moveIntoPlace(temporary, out)
}
