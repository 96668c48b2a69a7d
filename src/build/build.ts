import {copyFileSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {listNeededReleases} from '../accounting/periods.ts'
import {businessDateOf} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {temporaryBeside} from '../core/process.ts'
import type {Model, Moment, World} from '../core/types.ts'
import {type DataFolder, dataFolderAt, requireOutFile} from '../store/data-folder.ts'
import {openDatabase, quoteLiteral} from '../store/database.ts'
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
  noteWhole,
  placeRelease,
  pruneReleases,
  readLastBuild,
  shareFiles,
} from './build-folder.ts'
import {
  type Base,
  type Build,
  type BuildRequest,
  buildTables,
  filesOf,
  isBase,
  mayBecomeCurrent,
  momentOf,
  prepareBuild,
} from './build-tables.ts'
import {storeChecking} from './checks.ts'

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
  const isLatest = async () => build?.isHistorySame() || (await isLatestMoment(folder, moment, today))
  const isMoved = mayBecomeCurrent(request) && !isCurrent() && (await isLatest())
  if (isMoved) {
    moveCurrent(folder, release.dir)
    world.onStep('current moved')
  }
  if (existing === undefined || isMoved) {
    using stateDb = openStateDb(folder.stateDb)
    const pruned = pruneReleases(folder, config, listNeededReleases(stateDb))
    if (pruned.length === 0) world.log.info({release_id}, 'released')
    else world.log.info({release_id, count: pruned.length}, 'released; older releases removed')
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
function summariseChecks(outcomes: readonly CheckOutcome[]): ReleaseManifest['checks'] {
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

/** The result of a comparison. */
export interface Compared extends BuildResult {
  /** The share of deals that the compared build rebuilt; null if it had nothing to start from. */
  rebuilt: number | null
}

/** After this time (a week, ms) without a whole build, one is made to compare. */
const WHOLE_AFTER_MS = 7 * 86_400_000

/** Runs {@link compareBuilds} for the current release if no build has been whole for a week. */
export async function compareBuildsWhereDue(config: Config, world: World): Promise<void> {
  const last = readLastBuild(dataFolderAt(config.dataDir))
  if (!last || last.rebuilt === 0 || world.realClock.now() - Date.parse(last.whole_at) < WHOLE_AFTER_MS)
    return
  await compareBuilds(config, {}, world)
  world.log.info({release_id: last.release_id}, 'release compared with a whole build: identical')
}

/**
 * Builds a release unless it exists, builds it again from scratch, and compares every published table byte by byte, and the
 * findings of the checks. If the release itself was built whole, a build that starts from a few walks earlier is compared, too.
 *
 * @throws UnexpectedError `BUILD_DIFFERS` naming table, model and rows; the next build is whole
 */
export async function compareBuilds(config: Config, request: BuildRequest, world: World): Promise<Compared> {
  const folder = dataFolderAt(config.dataDir)
  const result = await buildRelease(config, request, world)
  const release = requireRelease(folder, result.release_id)
  const moment = momentOf(release.manifest)
  const bench = {folder, config, dirs: []}
  try {
    const whole = await buildAside(bench, {name: 'whole', moment}, world)
    await requireSame(folder, release, whole)
    const last = readLastBuild(folder)
    let rebuilt = last?.release_id === result.release_id && last.rebuilt > 0 ? last.rebuilt : null
    const earlier = rebuilt === null ? await findEarlier(folder, moment) : undefined
    if (earlier) {
      const before = await buildAside(bench, {name: 'before', moment: earlier}, world)
      const onward = await buildAside(bench, {name: 'onward', moment, before}, world)
      await requireSame(folder, onward, whole)
      rebuilt = onward.last.rebuilt || null
    }
    noteWhole(folder, result.release_id, new Date(world.realClock.now()))
    return {...result, rebuilt}
  } finally {
    bench.dirs.forEach(discardBuild)
  }
}

/** Builds in a folder of its own: whole, or from another build. */
async function buildAside(
  {folder, config, dirs}: {folder: DataFolder; config: Config; dirs: string[]},
  {name, moment, before}: {name: string; moment: Moment; before?: Base},
  world: World,
): Promise<Base & {models: readonly Model[]}> {
  const how = {...config, build: before ? ('incremental' as const) : ('whole' as const)}
  const today = businessDateOf(world.clock.now(), config)
  const {build} = await prepareBuild(folder, how, moment, {today, aside: name})
  if (!build) throw new Error('nothing was prepared')
  const {dir, identity} = build
  dirs.push(dir)
  const {plan, tables, outcomes, next} = await buildTables(folder, build, world, {base: before})
  const manifest = {...identity, tables, checks: summariseChecks(outcomes)}
  return {dir, last: next, manifest, models: plan.models}
}

/** How many walks back the earlier build is: a week of changes. */
const WALKS_BEFORE = 7

/** The moment {@link WALKS_BEFORE} walks earlier, or of the first walk; undefined if there is no earlier one. */
async function findEarlier(folder: DataFolder, {asOf, knownAt}: Moment): Promise<Moment | undefined> {
  await using db = await openHistory(folder)
  const walks = await db.all(
    z.object({asOf: z.string(), knownAt: z.string()}),
    `select business_date as "asOf", strftime(recorded_at, '%Y-%m-%d %H:%M:%S.%f') as "knownAt"
     from history.raw.walk
     where state = 'applied' and stream = 'deal' and business_date <= cast($1 as date) and recorded_at < cast($2 as timestamp)
     order by recorded_at desc limit ${WALKS_BEFORE}`,
    [asOf, knownAt],
  )
  return walks.at(-1)
}

/** Requires equal bytes of every table and equal findings of every check. */
async function requireSame(
  folder: DataFolder,
  built: Pick<Base, 'dir' | 'manifest'>,
  whole: Pick<Base, 'dir' | 'manifest'> & {models: readonly Model[]},
): Promise<void> {
  const refuse = (problem: string) => {
    rmSync(folder.lastBuild, {force: true})
    return newError('BUILD_DIFFERS', `${problem}.`)
  }
  for (const {name, file, sha256} of whole.manifest.tables) {
    if (built.manifest.tables.find((table) => table.name === name)?.sha256 === sha256) continue
    const difference = await describeDifference(join(built.dir, file), join(whole.dir, file))
    throw refuse(
      `Table '${name}' (${whole.models.find((model) => model.name === name)?.file}) of release ${whole.manifest.release_id} differs from that of a whole build: ${difference}`,
    )
  }
  const found = [built, whole].map(({manifest}) =>
    manifest.checks.results.map(
      ({name, failures, samples}) => `'${name}' ${failures}: ${samples.join(', ')}`,
    ),
  )
  const other = found.flat().find((result) => !found.every((results) => results.includes(result)))
  if (other !== undefined)
    throw refuse(
      `Findings of the checks of release ${whole.manifest.release_id} differ from those of a whole build: ${other}`,
    )
}

/** Rows of each side that a message shows. */
const ROWS_SHOWN = 3

/** The first rows that only one of two files has, in words. */
async function describeDifference(built: string, whole: string): Promise<string> {
  await using db = await openDatabase()
  const rowsOnlyIn = async (one: string, other: string) => {
    const [these, those] = [one, other].map((path) => `from read_parquet(${quoteLiteral(path)})`)
    const rows = await db.all(
      z.object({row: z.string()}),
      `select cast(to_json(t) as varchar) as row from ((${these}) except all (${those})) as t order by row limit ${ROWS_SHOWN}`,
    )
    return rows.map(({row}) => row).join(', ')
  }
  const [more, less] = [await rowsOnlyIn(built, whole), await rowsOnlyIn(whole, built)]
  const parts = [more && `it has the rows ${more}`, less && `it lacks the rows ${less}`].filter(Boolean)
  return parts.join('; ') || 'it has the same rows in another order'
}
