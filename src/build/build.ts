import {hash} from 'node:crypto'
import {rmSync, statSync} from 'node:fs'
import {availableParallelism} from 'node:os'
import {join} from 'node:path'
import {z} from 'zod'
import {listNeededReleases} from '../accounting/periods.ts'
import {businessDateOf} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {LoantapeError, messageOf, newError} from '../core/errors.ts'
import {GENERATOR, temporaryBeside} from '../core/process.ts'
import type {World} from '../core/types.ts'
import {dataFolderAt, requireOutFile} from '../store/data-folder.ts'
import {
  type Cut,
  type Database,
  mostMemoryMb,
  openDatabase,
  quoteLiteral,
  withinLimits,
} from '../store/database.ts'
import {beginFolder, copyIntoPlace} from '../store/files.ts'
import {readHistoryId, readSourceBridge, resolveMoment} from '../store/moment.ts'
import {readWentOn} from '../store/recorded.ts'
import {
  type CheckOutcome,
  databasesOf,
  findCurrentRelease,
  type Release,
  type ReleaseDatabases,
  type ReleaseManifest,
  readRelease,
  requireRelease,
  unlessDamaged,
  writeChecks,
  writeModels,
} from '../store/release.ts'
import {openStateDb} from '../store/state-db.ts'
import {copyHistory, openHistory} from '../store/warehouse.ts'
import {listKnownFields} from '../sync/mapped-fields.ts'
import {
  markPast,
  moveCurrent,
  noteUse,
  placeRelease,
  pruneReleases,
  writeParquetFiles,
} from './build-folder.ts'
import {type Around, buildModels, changedPathOf, fingerprintModels, type Subject} from './build-models.ts'
import {requirePassed, runChecks, storeChecking} from './checks.ts'
import {compileModels} from './compile.ts'
import {attachWhatChanged, type Base, findBase, noteLastBuild} from './last-build.ts'
import {publishedOf, readPublished, requireContract} from './published.ts'
import {planSelection, readSources} from './sources.ts'

export interface BuildRequest {
  /** `YYYY-MM-DD`; the latest business date by default. */
  asOf?: string | undefined
  /** `YYYY-MM-DD HH:MM:SS[.ssssss]`, UTC; by default the last apply that stored something new. */
  knownAt?: string | undefined
  /** Where to write the DuckDB file, too. */
  out?: string | undefined
  /** Builds only these models, into the scratch release (see `selectModels`). */
  select?: string | undefined
  /** Accepts published tables and columns that differ from the current release's. */
  accept?: 'columns' | undefined
}

export type BuildResult = Awaited<ReturnType<typeof buildRelease>>

/**
 * Builds every model into a new release, checks it, and only then gives it its final name. An existing release is not built
 * again. Only a plain build moves `current`, and not if a sync has stored something meanwhile.
 * @throws CheckError when a model or check fails, or `MODEL_CONTRACT`; nothing is then released; DeferredError `INTERRUPTED`;
 *   ConfigError `OUT_PLACE`
 */
export async function buildRelease(config: Config, request: BuildRequest, world: World) {
  const folder = dataFolderAt(config.dataDir)
  const out = request.out === undefined ? undefined : requireOutFile(folder, request.out)
  world.onProgress({step: 'preparing'})
  const {moment, build, existing} = await prepareBuild(config, request, world)
  const release = existing ?? (await buildAnew(build, world))
  const {release_id, known_at, checks, models} = release.manifest
  const [isPlain, isScratch] = [isPlainBuild(request), request.select !== undefined]
  noteUse(release.dir, isPlain, world.realClock.now())
  const isCurrent = () => unlessDamaged(() => findCurrentRelease(folder))?.manifest.release_id === release_id
  const move = async () => {
    // While it is open for reading, no sync stores anything.
    await using db = await openHistory(folder, world)
    const {asOf, knownAt} = await resolveMoment(db, {}, businessDateOf(world.clock.now(), config))
    // A sync has stored something meanwhile; its own release becomes current.
    if (asOf !== moment.asOf || knownAt !== moment.knownAt) return false
    if (existing && !request.accept) await requireContract(folder, await readPublished(existing), world)
    moveCurrent(folder, release.dir)
    world.onStep('current moved')
    return true
  }
  const isMoved = isPlain && !isCurrent() && (await move())
  const isNew = existing === undefined || isMoved
  if (isNew) {
    using stateDb = openStateDb(folder.stateDb)
    const pruned = pruneReleases(folder, config, listNeededReleases(stateDb))
    if (pruned.length === 0) world.log.info({release_id}, 'released')
    else world.log.info({release_id, count: pruned.length}, 'released; older releases removed')
  }
  if (out !== undefined) await copyIntoPlace(release.database, temporaryBeside(out), out)
  return {
    outcome: isNew ? ('released' as const) : ('unchanged' as const),
    release_id,
    as_of: moment.asOf,
    known_at,
    dir: release.dir,
    is_current: !isScratch && isCurrent(),
    is_scratch: isScratch,
    checks,
    models,
  }
}

/** Built if it does not exist. */
export async function requireBuilt(config: Config, request: BuildRequest, world: World): Promise<Release> {
  const {release_id} = await buildRelease(config, request, world)
  return requireRelease(dataFolderAt(config.dataDir), release_id)
}

async function buildAnew(build: Build, world: World): Promise<Release> {
  using place = build.place
  const files = filesOf(place.dir)
  world.onStep('history copied')
  const {plan, outcomes, manifest, next} = await buildTables(build, world)
  await writeModels(place.dir, plan)
  await writeChecks(place.dir, outcomes)
  world.onProgress({step: 'publishing'})
  if (build.isBase) noteLastBuild(build.folder, {...next, release_id: manifest.release_id}, files)
  for (const path of [files.spill, files.history, `${files.history}.wal`])
    rmSync(path, {recursive: true, force: true})
  world.onStep('tables written')
  const isScratch = build.request.select !== undefined
  if (!build.isPlain && !isScratch) markPast(place.dir)
  const placed = await placeRelease(place, manifest, {isScratch})
  world.onStep('release published')
  return placed
}

/** Warnings in full, passed checks as a count. */
function summariseChecks(outcomes: readonly CheckOutcome[]): ReleaseManifest['checks'] {
  const warned = outcomes.filter(({severity, failures}) => severity === 'warn' && failures > 0)
  return {
    passed: outcomes.length - warned.length,
    warned: warned.length,
    results: warned.map(({rows: _rows, description: _about, ...result}) => result),
  }
}

type Build = NonNullable<Awaited<ReturnType<typeof prepareBuild>>['build']>

/** Includes files that are removed before release. */
function filesOf(dir: string): ReleaseDatabases & {history: string; spill: string} {
  return {...databasesOf(dir), history: join(dir, 'history.duckdb'), spill: join(dir, 'spill')}
}

/** Whether a release may become the current one. */
function isPlainBuild({asOf, knownAt, select}: BuildRequest): boolean {
  return asOf === undefined && knownAt === undefined && select === undefined
}

/**
 * Reads from the warehouse what a build needs, and copies it; an existing release needs no build. With `aside`, a suffix of its
 * folder, it is built even if it exists. `from` is the build to start from, by default the last one if that is possible.
 */
export async function prepareBuild(
  config: Config,
  request: BuildRequest,
  world: World,
  {aside, from}: {aside?: string; from?: Base | undefined} = {},
) {
  const folder = dataFolderAt(config.dataDir)
  await using db = await openHistory(folder, world)
  const moment = await resolveMoment(db, request, businessDateOf(world.clock.now(), config))
  const sources = readSources(config, await listKnownFields(db), moment)
  const engine = await db.value(z.string(), 'select version()')
  const {historyId, tapeHead} = await readHistoryId(db, moment.knownAt)
  const {timeZone, dayCutoff} = config
  const inputs = [timeZone, dayCutoff, fingerprintModels(sources), engine, GENERATOR].join('\n')
  // Everything a release depends on: equal inputs give the same id on every machine.
  const apart = sources.seeds.filter(({isApart}) => isApart).map(({text}) => text)
  using stateDb = openStateDb(folder.stateDb)
  const wentOn = readWentOn(stateDb)
  const lost = (wentOn.went_on ?? []).map(({at}) => at)
  const all = [moment.asOf, moment.knownAt, historyId, inputs, ...apart, ...lost]
  const releaseId = `${moment.asOf}-${hash('sha256', all.join('\n')).slice(0, 12)}`
  const final = request.select === undefined ? join(folder.releases, releaseId) : folder.scratch
  const mayExist = request.select === undefined && aside === undefined
  const existing = mayExist ? unlessDamaged(() => readRelease(final)) : undefined
  if (existing) return {moment, existing}
  const source = await readSourceBridge(db, moment)
  const identity: Omit<ReleaseManifest, 'checks' | 'models' | 'tables' | 'files'> = {
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
    ...wentOn,
  }
  using opening = new DisposableStack()
  const place = opening.use(beginFolder(aside === undefined ? final : `${final}-${aside}`))
  const {history} = filesOf(place.dir)
  await copyHistory(folder, history)
  const isPlain = isPlainBuild(request)
  const isLarge = config.build === 'auto' && statSync(history).size >= GO_ON_BYTES
  const isBase = isPlain && (isLarge || config.build === 'incremental')
  const base = from ?? (isBase ? findBase(folder, inputs, moment) : undefined)
  opening.move()
  return {
    moment,
    build: {
      folder,
      config,
      request,
      sources,
      moment,
      /** Known before the build. */
      identity,
      /** What the release depends on besides history and moment. */
      inputs,
      /** It may become the current release, and the next build start from it. */
      isPlain,
      isBase,
      /** Built only to be compared with another build. */
      isAside: aside !== undefined,
      base,
      /** It holds a copy of the warehouse, so that nobody waits for the warehouse while models run. */
      place,
    },
  }
}

/** Below this size of history, a whole build is faster than starting from the last one. */
const GO_ON_BYTES = 8_000_000

/**
 * If the models are those of the last build and the history has only grown since, builds only changed deals; the tables come out
 * the same.
 * @throws CheckError when a model or check fails
 */
export async function buildTables(prepared: Build, world: World) {
  const {folder, sources, request, isPlain, base} = prepared
  world.onProgress({step: 'compiling'})
  const whole = await compileModels(sources)
  const source = {...prepared, ...planSelection(whole, sources.checks, request.select ?? world.select)}
  world.onStep('models compiled')
  if (isPlain && !request.accept) await requireContract(folder, publishedOf(whole), world)
  if (base) {
    try {
      return await build(source, world)
    } catch (error) {
      // A shared model has changed, or the last build is unreadable.
      if (error instanceof LoantapeError && !MAY_BE_THE_FILE.includes(error.code)) throw error
      world.log.info({reason: messageOf(error)}, 'building whole: could not start from the last build')
    }
  }
  return await build({...source, base: undefined}, world)
}

/** Errors that an unreadable file of the last build can cause; so can a wrong model. */
const MAY_BE_THE_FILE = ['MODEL_BUILD', 'CHECK_SQL', 'RELEASE_DAMAGED']

async function build(source: Build & ReturnType<typeof planSelection>, world: World) {
  const {folder, config, identity, inputs, moment, plan, checks, place, dropped, base: before} = source
  const {timeZone, dayCutoff} = config
  const files = filesOf(place.dir)
  if (!before) for (const file of [files.database, files.work]) rmSync(file, {force: true})
  const historyBytes = statSync(files.history).size
  const attach = [{path: files.history, alias: 'history', readOnly: true}]
  await using db = await openDatabase({attach, lanes: lanesOf(config, historyBytes)})
  const limited = await limitBuild(db, config, {spillDir: files.spill, historyBytes}, world)
  const rebuilt = before
    ? await attachWhatChanged(db, files, {config, moment, models: plan.models}, before)
    : 0
  // A crashed build is deleted, so it needs no write-ahead log. Readers have other engines, down to this version.
  await db.run(
    `attach ${quoteLiteral(files.database)} as release (recovery_mode no_wal_writes, storage_version 'v1.1.0')`,
  )
  const counted = (step: string, total: number) => countEach(limited, {step, total}, world)
  const around = counted('models', plan.models.length)
  const how = {around, work: files.work, before: before?.last.shared}
  const {models, shared} = await buildModels(db, plan, {...moment, timeZone, dayCutoff}, how)
  world.onStep('models built')
  const outcomes = await runChecks(db, checks, {
    around: counted('checks', checks.length),
    changed: before && {
      path: changedPathOf(plan.models),
      failed: before.manifest.checks.results.map(({name}) => name),
    },
  })
  if (!source.isAside) {
    using stateDb = openStateDb(folder.stateDb)
    const at = new Date(world.realClock.now())
    const about = {release_id: identity.release_id, isPlain: source.isPlain, at}
    storeChecking(stateDb, about, outcomes)
  }
  requirePassed(outcomes)
  world.onStep('checks passed')
  for (const name of dropped) await db.run(`drop table release.${name}`)
  const written = plan.models
    .filter(({name, isPublished}) => isPublished && !dropped.includes(name))
    .map(({isPerDeal, ...model}) => ({...model, isStored: !before || !isPerDeal}))
  const tables = await writeParquetFiles(db, place.dir, written, counted('tables', written.length))
  await db.run('use memory.main; checkpoint release; detach release; detach history')
  const whole_at = before?.last.whole_at ?? new Date(world.realClock.now()).toISOString()
  /** What the next build can start from, without the digests of the files. */
  const next: Base['last'] = {inputs, shared, rebuilt, whole_at}
  const manifest = {
    ...identity,
    checks: summariseChecks(outcomes),
    models: models.filter(({name}) => !dropped.includes(name)),
    tables,
  }
  return {plan, outcomes, manifest, next}
}

/** Least memory per thread, from the engine's documentation. */
const THREAD_MB = 125

/** Bytes of history per thread. With less, building models in parallel is enough; more threads only spin while they wait for each other. */
const THREAD_BYTES = 7_000_000

/** Enough for a million deals; with more, the engine takes more memory and is no faster. */
const ENOUGH_MB = 1700

const LANE_MB = 850

/** From this many bytes of history on, there is one lane: two large statements at once need twice the memory and save no time. */
const ONE_LANE_BYTES = 60_000_000

/** Returns a function that limits the time of each model, check or file. `spillDir` is a folder that only this build uses. */
export async function limitBuild(
  db: Database,
  config: Pick<Config, 'memoryMb' | 'modelTimeoutSeconds'>,
  {spillDir, historyBytes}: {spillDir: string; historyBytes: number},
  world: World,
): Promise<Around> {
  await db.run(`set temp_directory = ${quoteLiteral(spillDir)}`)
  const memoryMb = memoryFor(config)
  const most = Math.min(historyBytes / THREAD_BYTES, memoryMb / THREAD_MB, availableParallelism())
  const threads = Math.max(1, Math.floor(most))
  await db.run(`set memory_limit = '${memoryMb}MB'; set threads = ${threads}`)
  const limits = {limitMs: config.modelTimeoutSeconds * 1000, signal: world.signal}
  return (subject, work, lane) =>
    withinLimits(lane, limits, work, (cut, cause) => describeCut(subject, config, cut, cause))
}

function countEach(
  limited: Around,
  {step, total}: {step: string; total: number},
  world: Pick<World, 'onProgress'>,
): Around {
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

/** Models, checks or files to work on at once. */
function lanesOf(config: Pick<Config, 'memoryMb'>, historyBytes: number): number {
  if (historyBytes >= ONE_LANE_BYTES) return 1
  return Math.max(1, Math.min(availableParallelism(), Math.floor(memoryFor(config) / LANE_MB)))
}

function memoryFor(config: Pick<Config, 'memoryMb'>): number {
  return config.memoryMb ?? Math.floor(Math.min(ENOUGH_MB, mostMemoryMb()))
}

function describeCut(
  subject: Subject,
  config: Pick<Config, 'memoryMb' | 'modelTimeoutSeconds'>,
  cut: Cut,
  cause: unknown,
): Error {
  const kind = 'grain' in subject ? 'Model' : 'severity' in subject ? 'Check' : 'Table'
  const what = `${kind} '${subject.name}' in ${subject.file}`
  if (cut === 'time') {
    const problem = `${what} took longer than ${config.modelTimeoutSeconds} s and was interrupted: expected it to end within that time.`
    return newError('BUILD_TIMEOUT', problem, {cause})
  }
  if (cut === 'memory') {
    const problem = `${what} needs more than ${memoryFor(config)} MB of memory, even with spilling: expected it to fit into LOANTAPE_MEMORY_MB.`
    return newError('BUILD_MEMORY', problem, {cause})
  }
  const problem = `Asked to stop: ${kind.toLowerCase()} '${subject.name}' was interrupted.`
  return newError('INTERRUPTED', problem, {
    kept: 'What was walked is stored; nothing was released, and `current` is as it was.',
    next: 'Run it again; the next sync or `loantape build` builds what is missing.',
    cause,
  })
}
