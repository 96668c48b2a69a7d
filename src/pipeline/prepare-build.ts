import {join} from 'node:path'
import {z} from 'zod'
import type {Config} from '../config.ts'
import {listKnownFields} from '../load/mapped-fields.ts'
import {fingerprintModels} from '../model/build-models.ts'
import {compileModels} from '../model/compile-models.ts'
import {createBuildFolder, discardBuild, releaseIdOf} from '../release/build-folder.ts'
import {databasesOf, type Release, type ReleaseDatabases, readRelease} from '../release/manifest.ts'
import {readHistoryId, readSourceBridge, resolveMoment} from '../release/moment.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import type {Moment, World} from '../types.ts'
import {GENERATOR} from '../version.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {copyHistory, openHistory} from '../warehouse/history.ts'
import {planSelection, readSources, type SelectionPlan, type Sources} from './sources.ts'

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

/** A release that is to be built: what of, for when, and where. */
export interface Build {
  config: Config
  request: BuildRequest
  sources: Sources
  moment: Moment
  /** What the manifest says before anything is built. */
  identity: Omit<ReleaseManifest, 'checks' | 'models' | 'tables'>
  /** Digest of models, checks and seeds. */
  fingerprint: string
  /** The folder it is built in, with a copy of the warehouse: nobody waits while models run. */
  dir: string
}

/** The files of a build in its folder: what a release keeps, and what it does not. */
export function filesOf(dir: string): ReleaseDatabases & {history: string; spill: string} {
  return {...databasesOf(dir), history: join(dir, 'history.duckdb'), spill: join(dir, 'spill')}
}

/** Whether a release is to become the current one. */
export function isPlain({asOf, knownAt, select}: BuildRequest): boolean {
  return asOf === undefined && knownAt === undefined && select === undefined
}

/**
 * Reads from the warehouse what a build needs, and copies it; a release that is there already needs no build.
 *
 * @param aside builds it even so, in a folder with this in its name
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
  const releaseId = releaseIdOf({...moment, historyId, timeZone, dayCutoff, fingerprint, engine})
  const existing =
    request.select === undefined && aside === undefined
      ? readRelease(join(folder.releases, releaseId))
      : undefined
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
  const dir = await createBuildFolder(folder, aside === undefined ? releaseId : `${releaseId}-${aside}`)
  try {
    await copyHistory(folder, filesOf(dir).history)
    return {moment, build: {config, request, sources, moment, identity, fingerprint, dir}}
  } catch (error) {
    discardBuild(dir)
    throw error
  }
}

/** A build whose models are compiled. */
export type PlannedBuild = Build & SelectionPlan

/** Compiles the models of a build, and selects those that were asked for. */
export async function planBuild(folder: DataFolder, build: Build, world: World): Promise<PlannedBuild> {
  const {sources, request} = build
  const whole = await compileModels(sources, world, folder.cache)
  return {...build, ...planSelection(whole, sources.checks, request.select ?? world.select)}
}
