import {copyFileSync, existsSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {readChecks} from '../check/read-checks.ts'
import {requirePassed, runChecks} from '../check/run-checks.ts'
import {businessDateOf} from '../clock.ts'
import type {Config} from '../config.ts'
import {ConfigError} from '../errors.ts'
import {openLedger} from '../ledger/ledger.ts'
import {listNeededReleases} from '../ledger/retention.ts'
import {buildModels, fingerprintModels} from '../model/build-models.ts'
import {compileModels} from '../model/compile-models.ts'
import {BUILT_IN_SQL, readModels} from '../model/read-models.ts'
import {readSeeds} from '../model/seeds.ts'
import {findCurrentRelease, readRelease} from '../release/manifest.ts'
import {type Moment, readSourceBridge, resolveMoment} from '../release/moment.ts'
import {pruneReleases} from '../release/prune.ts'
import {
  createBuildFolder,
  discardBuild,
  moveCurrent,
  publishRelease,
  releaseIdOf,
  writeParquetFiles,
} from '../release/publish.ts'
import type {Check, Model, ReleaseManifest, World} from '../types.ts'
import {GENERATOR} from '../version.ts'
import {moveIntoPlace} from '../warehouse/atomic-file.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import type {Database} from '../warehouse/database.ts'
import {openHistory} from '../warehouse/warehouse.ts'

/** Which release to build. */
export interface BuildRequest {
  /** `YYYY-MM-DD`; the latest business date by default. */
  asOf?: string | undefined
  /** `YYYY-MM-DD HH:MM:SS[.ssssss]`, UTC; by default the last apply that told something new. */
  knownAt?: string | undefined
  /** Also write the DuckDB file here. */
  out?: string | undefined
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
  checks: {passed: number; warned: number}
}

/** What a release is built from beside the history. */
interface Sources {
  models: Model[]
  seeds: ReturnType<typeof readSeeds>
  checks: Check[]
}

/**
 * The built-in models, checks and seeds, and the user's own.
 *
 * @throws ConfigError `SQL_DIR_MISSING`; CheckError when a file of theirs cannot be read
 */
export function readSources({sqlDir}: Config): Sources {
  if (sqlDir !== undefined && !existsSync(sqlDir)) {
    throw new ConfigError({
      code: 'SQL_DIR_MISSING',
      problem: `Folder '${sqlDir}' in LOANTAPE_SQL_DIR is not there.`,
      kept: 'Nothing was released; what was walked is stored, and current still points to the release before.',
      next: 'Correct the setting, then run `loantape build`.',
    })
  }
  const folders = [BUILT_IN_SQL, ...(sqlDir === undefined ? [] : [sqlDir])]
  const models = readModels(folders)
  const tags = models.flatMap((model) => model.checks)
  return {models, seeds: readSeeds(folders), checks: readChecks(tags, folders)}
}

/**
 * Builds every model into a new release, checks it and only then gives it its name; only a plain build moves
 * `current`. A release that is there already is not built again.
 *
 * @throws CheckError when a model or check fails: nothing was released
 */
export async function buildRelease(
  folder: DataFolder,
  config: Config,
  request: BuildRequest,
  world: World,
): Promise<BuildResult> {
  const sources = readSources(config)
  await using db = await openHistory(folder)
  const moment = await resolveMoment(db, request, businessDateOf(world.clock.now(), config))
  const {engine} = await db.one(z.object({engine: z.string()}), 'select version() as engine')
  const fingerprint = fingerprintModels(sources.models, sources.checks, sources.seeds)
  const releaseId = releaseIdOf({...moment, fingerprint, engine})
  const isPlain = request.asOf === undefined && request.knownAt === undefined
  const existing = readRelease(join(folder.releases, releaseId))
  const isUnchanged = existing !== undefined && findCurrentRelease(folder)?.manifest.release_id === releaseId

  const release =
    existing ?? (await buildAnew(db, folder, {config, sources, moment, releaseId, engine}, world))
  if (isPlain && !isUnchanged) {
    moveCurrent(folder, release.dir)
    world.onStep('current moved')
    const pruned = pruneReleases(folder, config.releasesKept, readNeededReleases(folder))
    world.log.info({release_id: releaseId, count: pruned.length}, 'released; count releases pruned')
  }
  if (request.out !== undefined) copyRelease(join(release.dir, 'portfolio.duckdb'), request.out)
  const {passed, warned} = release.manifest.checks
  return {
    outcome: existing === undefined || (isPlain && !isUnchanged) ? 'released' : 'unchanged',
    release_id: releaseId,
    as_of: moment.asOf,
    known_at: release.manifest.known_at,
    dir: release.dir,
    is_current: isPlain || isUnchanged,
    checks: {passed, warned},
  }
}

function readNeededReleases(folder: DataFolder): Set<string> {
  using ledger = openLedger(folder.ledger)
  return listNeededReleases(ledger)
}

async function buildAnew(
  db: Database,
  folder: DataFolder,
  input: {config: Config; sources: Sources; moment: Moment; releaseId: string; engine: string},
  world: World,
): Promise<{dir: string; manifest: ReleaseManifest}> {
  const {sources, moment, releaseId} = input
  world.onProgress({step: 'building', pages: 0, records: 0, expected: null, waitedMs: 0, isWaiting: false})
  const plan = await compileModels(sources)
  world.onStep('models compiled')
  const source = await readSourceBridge(db, moment)
  const buildDir = await createBuildFolder(folder, releaseId)
  try {
    await db.run(`attach '${join(buildDir, 'portfolio.duckdb').replaceAll("'", "''")}' as release`)
    const models = await buildModels(db, plan, moment)
    world.onStep('models built')
    const results = await runChecks(db, sources.checks)
    requirePassed(results)
    world.onStep('checks passed')
    const tables = await writeParquetFiles(db, buildDir, releaseId)
    await db.run('use memory.main; checkpoint release; detach release')
    world.onStep('tables written')
    const warned = results.filter(({severity, failures}) => severity === 'warn' && failures > 0)
    const manifest: ReleaseManifest = {
      schema_version: 1,
      generator: GENERATOR,
      engine: `DuckDB ${input.engine}`,
      release_id: releaseId,
      as_of: moment.asOf,
      known_at: `${moment.knownAt.replace(' ', 'T')}Z`,
      observed_until: source.business_date,
      currency: 'USD',
      time_zone: input.config.timeZone,
      source,
      checks: {passed: results.length - warned.length, warned: warned.length, results: warned},
      models,
      tables,
    }
    const dir = await publishRelease(folder, buildDir, manifest)
    world.onStep('release published')
    return {dir, manifest}
  } catch (error) {
    discardBuild(buildDir)
    throw error
  }
}

function copyRelease(database: string, out: string): void {
  const temporary = `${out}.tmp-${process.pid}`
  copyFileSync(database, temporary)
  moveIntoPlace(temporary, out)
}
