import {copyFileSync, rmSync} from 'node:fs'
import {listNeededReleases} from '../accounting/periods.ts'
import {businessDateOf} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {temporaryBeside} from '../core/process.ts'
import type {Moment, World} from '../core/types.ts'
import {type DataFolder, dataFolderAt, requireOutFile} from '../store/data-folder.ts'
import {moveIntoPlace, shareWithFolder} from '../store/files.ts'
import {resolveMoment} from '../store/moment.ts'
import type {CheckOutcome, ReleaseManifest} from '../store/release.ts'
import {
  databasesOf,
  findCurrentRelease,
  type Release,
  requireRelease,
  writeChecks,
  writeModels,
} from '../store/release.ts'
import {openStateDb} from '../store/state-db.ts'
import {openHistory} from '../store/warehouse.ts'
import {
  discardBuild,
  markPast,
  moveCurrent,
  noteLastBuild,
  noteUse,
  placeRelease,
  pruneReleases,
  shareFiles,
} from './build-folder.ts'
import {buildTables, isBase} from './build-tables.ts'
import {storeChecking} from './checks.ts'
import {type Build, type BuildRequest, filesOf, mayBecomeCurrent, prepareBuild} from './prepare-build.ts'

/** The result of a build. */
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
  checks: ReleaseManifest['checks']
  models: ReleaseManifest['models']
}

/**
 * Builds every model into a new release, checks it, and only then gives it its final name. Only a plain build moves `current`,
 * and never behind a sync that stored something in the meantime. An existing release is not built again. With `select`, only the
 * selected models are built, into the scratch release.
 *
 * @throws CheckError when a model or check fails: nothing was released; DeferredError `BUILD_STOPPED`; ConfigError
 * `OUT_PLACE`
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
  const {moment, build, existing} = await prepareBuild(folder, config, request, {today})
  const release = existing ?? (await buildAnew(folder, build, world))
  const {release_id, known_at, checks, models} = release.manifest
  noteUse(release.dir, mayBecomeCurrent(request), new Date(world.realClock.now()))
  const isCurrent = () => findCurrentRelease(folder)?.manifest.release_id === release_id
  const isMoved = mayBecomeCurrent(request) && !isCurrent() && (await isLatestMoment(folder, moment, today))
  if (isMoved) {
    moveCurrent(folder, release.dir)
    world.onStep('current moved')
  }
  if (existing === undefined || isMoved) {
    using stateDb = openStateDb(folder.stateDb)
    const pruned = pruneReleases(folder, config, listNeededReleases(stateDb))
    world.log.info({release_id, count: pruned.length}, 'released; older releases removed')
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
    checks,
    models,
  }
}

/** Builds the release of a date unless it exists, and reads it. */
export async function requireBuilt(
  config: Config,
  moment: {asOf: string; knownAt?: string | undefined},
  world: World,
): Promise<Release> {
  const {release_id} = await buildRelease(config, moment, world)
  return requireRelease(dataFolderAt(config.dataDir), release_id)
}

/** Whether no sync has stored anything since. If one has, its own release will become current. */
async function isLatestMoment(folder: DataFolder, moment: Moment, today: string): Promise<boolean> {
  await using db = await openHistory(folder)
  const {asOf, knownAt} = await resolveMoment(db, {}, today)
  return asOf === moment.asOf && knownAt === moment.knownAt
}

async function buildAnew(folder: DataFolder, build: Build, world: World): Promise<Release> {
  const {request, identity, dir: buildDir} = build
  const files = filesOf(buildDir)
  try {
    world.onStep('history copied')
    const {plan, checks, dropped, models, tables, outcomes, next} = await buildTables(folder, build, world, {
      onChecked(found) {
        using stateDb = openStateDb(folder.stateDb)
        const at = new Date(world.realClock.now())
        storeChecking(
          stateDb,
          {release_id: identity.release_id, isPlain: mayBecomeCurrent(request), at},
          found,
        )
      },
    })
    await writeModels(buildDir, plan)
    await writeChecks(buildDir, checks, outcomes)
    await shareFiles(buildDir, tables, findCurrentRelease(folder))
    world.onProgress({step: 'publishing'})
    if (isBase(build)) noteLastBuild(folder, {...next, release_id: identity.release_id}, files)
    for (const path of [files.spill, files.history, `${files.history}.wal`])
      rmSync(path, {recursive: true, force: true})
    world.onStep('tables written')
    const manifest: ReleaseManifest = {
      ...identity,
      checks: summariseChecks(outcomes),
      models: models.filter(({name}) => !dropped.includes(name)),
      tables,
    }
    if (!mayBecomeCurrent(request) && request.select === undefined) markPast(buildDir)
    const dir = await placeRelease(folder, buildDir, manifest, {isScratch: request.select !== undefined})
    world.onStep('release published')
    return {dir, ...databasesOf(dir), manifest}
  } catch (error) {
    discardBuild(buildDir)
    throw error
  }
}

/** The findings of checks for a manifest; passed ones are only counted. */
export function summariseChecks(outcomes: readonly CheckOutcome[]): ReleaseManifest['checks'] {
  const warned = outcomes.filter(({severity, failures}) => severity === 'warn' && failures > 0)
  return {
    passed: outcomes.length - warned.length,
    warned: warned.length,
    results: warned.map(({ids: _ids, ...result}) => result),
  }
}

function copyRelease(database: string, out: string): void {
  const temporary = temporaryBeside(out)
  copyFileSync(database, temporary)
  shareWithFolder(temporary)
  moveIntoPlace(temporary, out)
}
