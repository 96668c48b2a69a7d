import {existsSync, rmSync} from 'node:fs'
import {z} from 'zod'
import type {MappedField} from '../contract/mapped-field.ts'
import {STREAMS} from '../contract/streams.ts'
import {businessDateOf} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {codeOf, messageOf, newError} from '../core/errors.ts'
import {nameOfUser} from '../core/process.ts'
import {listSome} from '../core/text.ts'
import type {World} from '../core/types.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../store/data-folder.ts'
import {type Database, giveBackMemory, openDatabase, quoteLiteral} from '../store/database.ts'
import {linkOrMove, moveIntoPlace} from '../store/files.ts'
import {type Disagreement, readFact, requireFolderId} from '../store/recorded.ts'
import {withRun} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import {findReadKey} from '../store/tape-key.ts'
import {
  isDamage,
  listRawTables,
  lockWarehouse,
  migrate,
  openWarehouse,
  prepareLoad,
  setAside,
  writeSettings,
} from '../store/warehouse.ts'
import {
  catchUpWarehouse,
  type HistoryUnit,
  listUnits,
  planCatchUp,
  readFrames,
  readTakenBack,
  settleAgain,
  type TakenBack,
} from './catch-up.ts'
import {readMappedFields, writeKnownFields} from './mapped-fields.ts'
import {createStage, rebuildHead} from './stream-tables.ts'
import {listReadableTapes, openTapes} from './tapes.ts'

/** @throws UnexpectedError `REBUILD_LOSES` if a settle since `since` is on no tape */
async function requireEverySettle(db: Database, {units, since}: Basis): Promise<void> {
  const lost = await db.column(
    z.string(),
    `select kind || ' of ' || recorded_at from present.raw.settle
     where recorded_at >= $1::timestamp and tape_head not in (select unnest(from_json($2, '["varchar"]')))
     order by recorded_at`,
    [since, JSON.stringify(units.map(({chain}) => chain))],
  )
  if (lost.length === 0) return
  throw newError(
    'REBUILD_LOSES',
    `The tapes lack ${lost.length} of the warehouse's settles: ${listSome(lost)}.`,
  )
}

async function compareTables(db: Database) {
  const differences = []
  for (const table of await listRawTables(db)) {
    // It says how records differed from the contract of their time, which may have changed.
    if (table === 'drift') continue
    const [now, rebuilt] = [selectCompared('present', table), selectCompared('history', table)]
    const counts = await db.one(
      z.object({only_now: z.coerce.number(), only_rebuilt: z.coerce.number()}),
      `select
         (select count(*) from ((${now}) except all (${rebuilt}))) as only_now,
         (select count(*) from ((${rebuilt}) except all (${now}))) as only_rebuilt`,
    )
    if (counts.only_now + counts.only_rebuilt > 0) differences.push({table, ...counts})
  }
  return differences
}

/** Leaves out the columns of the latest states that can change without a new version. */
function selectCompared(catalog: 'present' | 'history', table: string): string {
  const columns = table.endsWith('_head') ? '* exclude (detail_at, list_hash)' : '*'
  return `select ${columns} from ${catalog}.raw.${table}`
}

interface Basis {
  units: readonly HistoryUnit[]
  /** Nothing was stored before these units. */
  isWhole: boolean
  /** When the first of them that stays was settled; null if none was. */
  since: string | null
  takenBack: readonly TakenBack[]
  /** When those that are taken back were settled. */
  undone: readonly string[]
  /** Undefined keeps those of the warehouse. */
  fields: readonly MappedField[] | undefined
  settings: Parameters<typeof writeSettings>[1]
}

/** The past of a new field is known only from the tapes. */
async function takeOverFields(db: Database, {fields, since}: Basis): Promise<void> {
  if (!fields) return db.run('insert into history.raw.mapped_field from present.raw.mapped_field')
  await writeKnownFields(db, fields)
  await db.run(
    `update history.raw.mapped_field as field
     set since = case
       when known.name is not null then known.since
       when basis.since > basis.first then basis.since
     end
     from history.raw.mapped_field as own
     left join present.raw.mapped_field as known using (name, type, path)
     cross join (
       select min(recorded_at) as first, coalesce($1::timestamp, max(recorded_at) + interval 1 microsecond) as since
       from present.raw.settle
     ) as basis
     where field.name = own.name`,
    [since],
  )
}

async function takeOverRows(db: Database, {units, since, undone}: Basis): Promise<void> {
  const [first, ...gone] = [since ?? 'infinity', ...undone].map((at) => `${quoteLiteral(at)}::timestamp`)
  const isAnew = (column: string) =>
    `(${column} >= ${first} or list_contains([${gone.join(', ')}], ${column}))`
  const before = `not ${isAnew('recorded_at')}`
  const names = units.map(({tape}) => quoteLiteral(tape.name)).join(', ')
  const walk = `if(state = 'applied', ${before}, walk_id not in (select unnest([${names}]::varchar[])))`
  const ofWalk = `walk_id in (select walk_id from present.raw.walk where ${walk})`
  const conditions: Record<string, string> = {
    ...{setting: 'true', walk, listing: ofWalk, drift: ofWalk, quarantine: ofWalk},
    deal_extra: `${before} and name in (
      select name from history.raw.mapped_field semi join present.raw.mapped_field using (name, path, type)
    )`,
  }
  for (const table of await listRawTables(db)) {
    if (table.endsWith('_head') || table === 'mapped_field') continue
    const condition = conditions[table] ?? before
    await db.run(`insert into history.raw.${table} by name from present.raw.${table} where ${condition}`)
  }
  await db.run(`update history.raw.quarantine set replayed_at = null where ${isAnew('replayed_at')}`)
  for (const stream of STREAMS) await rebuildHead(db, stream)
}

interface RebuildRequest {
  isApplied?: boolean
  without?: {walk: string; why: string} | undefined
  /** Keeps the mapped fields of the warehouse, whatever `fields.json` says now. */
  keepsFields?: boolean
}

/** Units to settle before the engine is closed: only that frees its memory, so years need no more than days. */
const UNITS_AT_ONCE = 20

export type RebuildResult = Awaited<ReturnType<typeof rebuildWarehouse>>

/**
 * Computes the warehouse again from the tapes, beside the present one, and compares the two row by row. What was stored before
 * the first tape is copied.
 * @throws ConfigError `UNKNOWN_NAME`, those of the tapes' key; UnexpectedError `DATA_NEWER`, `REBUILD_BASE`, `REBUILD_LOSES`,
 *   `TAPE_DAMAGED`
 */
export async function rebuildWarehouse(
  config: Config,
  {isApplied = false, without, keepsFields = false}: RebuildRequest,
  outside: World,
) {
  const folder = dataFolderAt(config.dataDir)
  // A demo's folder may be examined, but not replaced.
  if (isApplied) requireWritable(folder)
  return withRun(folder.stateDb, 'rebuild', outside, async ({stateDb, world}) => {
    world.onProgress({step: 'reading'})
    using tapes = openTapes(config, {folder, stateDb}, world)
    // Like the next run: what dead runs concluded counts.
    tapes.listLeft()
    const isReadable = await isOpenable(config, folder, world)
    const {units: all, lacking} = listUnits(stateDb, listReadableTapes(folder, stateDb, tapes.key))
    const units = all.filter(({no}) => no > (lacking.at(-1)?.no ?? 0))
    const historyHead = readFact(stateDb, 'history_head')
    // A damaged file may hold history that no store knows any more.
    const isKnown = historyHead !== undefined || !existsSync(folder.warehouse)
    const isWhole = lacking.length === 0 && isKnown
    const takenBack = readTakenBack(units)
    const last = without && requireWalk(units, without)
    if (last) takenBack.push(last)
    const isUndone = (unit: HistoryUnit) => findTakenBack(takenBack, unit) !== undefined
    // Under a clock that was ahead, what is taken back has a later instant than what was settled after it.
    const kept = units.filter((unit) => unit.kind !== 'without' && !isUndone(unit)).values()
    const since = kept.map(findSettled).find((at) => at !== null) ?? null
    const basis: Basis = {
      ...{units, isWhole, since, takenBack},
      undone: units
        .filter(isUndone)
        .map(findSettled)
        .filter((at) => at !== null),
      fields: keepsFields ? undefined : readMappedFields(folder),
      settings: {
        folder_id: requireFolderId(stateDb),
        // The last units may have been given up. Without units, the copied setting stays.
        tape_head: units.length > 0 || isWhole ? historyHead : undefined,
      },
    }
    const temporary = `${folder.warehouse}.rebuilt`
    using cleaning = new DisposableStack()
    cleaning.defer(() => removeDatabase(temporary))
    const compute = (present: boolean) => computeAnew(config, basis, {temporary, present}, world)
    const differences = await compute(isReadable).catch((error: unknown) => {
      if (!isReadable || !isDamage(error)) throw error
      const reason = messageOf(error)
      world.log.warn({file: folder.warehouse, reason}, 'the present warehouse cannot be read')
      return compute(false)
    })
    const result = {
      units: units.length,
      /** When the first of them was settled; earlier rows were copied unchanged. */
      since,
      /** Null if the present warehouse cannot be read. */
      differences,
      /** Where the files it replaced are now. */
      set_aside: [] as string[],
    }
    if (differences?.length === 0) return {outcome: 'equal' as const, ...result}
    if (!isApplied) return {outcome: 'different' as const, ...result}
    endIfStopped(world)
    if (last) {
      // Every later rebuild must leave the walk out too.
      const now = world.clock.now()
      const said = {kind: 'without', ...without, who: world.who ?? nameOfUser()}
      const tape_head = await tapes.settleOfDay(businessDateOf(now, config), said, ({conclude}) =>
        conclude(BigInt(now) * 1000n),
      )
      await using db = await openDatabase({attach: [{path: temporary, alias: 'history'}]})
      await nameTakenBack(db, units, {...last, chain: tape_head})
      await writeSettings(db, {tape_head})
    }
    const how = differences === null ? 'damaged' : 'before-rebuild'
    result.set_aside = await putInPlace(folder, {temporary, how}, config, world)
    return {outcome: 'rebuilt' as const, ...result}
  })
}

function endIfStopped({signal}: World): void {
  if (signal.aborted)
    throw newError('INTERRUPTED', 'The rebuild was asked to stop.', {
      kept: 'Nothing was changed.',
      next: 'Run it again.',
    })
}

function removeDatabase(file: string): void {
  for (const path of [file, `${file}.wal`]) rmSync(path, {force: true})
}

/**
 * Copies into an empty warehouse what was stored before the first settle of the tapes, settles their units, and compares the
 * result with the present warehouse, if that can be read.
 * @throws UnexpectedError `REBUILD_BASE`, `REBUILD_LOSES`
 */
async function computeAnew(
  config: Config,
  basis: Basis,
  {temporary, present}: {temporary: string; present: boolean},
  world: World,
) {
  const {units, since, takenBack, fields, settings} = basis
  if (!present && !basis.isWhole)
    throw newError(
      'REBUILD_BASE',
      `The warehouse cannot be read, and the tapes begin ${since === null ? 'nowhere' : `at ${since}`}: what was stored before is on no tape.`,
    )
  const folder = dataFolderAt(config.dataDir)
  const attach = [
    {path: temporary, alias: 'history'},
    ...(present ? [{path: folder.warehouse, alias: 'present', readOnly: true}] : []),
  ]
  async function work<T>(task: (db: Database) => Promise<T>): Promise<T> {
    await using db = await openDatabase({attach, threads: 1})
    await prepareLoad(db, folder, config.memoryMb)
    await migrate(db, 'history')
    await createStage(db)
    const result = await task(db)
    await db.run('checkpoint history')
    return result
  }

  const report = (done: number) => {
    endIfStopped(world)
    world.onProgress({step: 'rebuilding', unit: 'units', done, total: units.length})
  }
  removeDatabase(temporary)
  report(0)
  await work(async (db) => {
    if (!present) return writeKnownFields(db, fields ?? [])
    await requireEverySettle(db, basis)
    await takeOverFields(db, basis)
    await takeOverRows(db, basis)
  })
  for (let next = 0; next < units.length; next += UNITS_AT_ONCE) {
    await work(async (db) => {
      for (const [index, unit] of units.slice(next, next + UNITS_AT_ONCE).entries()) {
        await settleAgain(db, unit, findTakenBack(takenBack, unit)?.why)
        report(next + index + 1)
      }
    })
    await giveBackMemory()
  }
  await work(async (db) => {
    for (const one of readTakenBack(units)) await nameTakenBack(db, units, one)
    await writeSettings(db, settings)
  })
  world.onProgress({step: 'comparing'})
  if (!present) return null
  return work(compareTables)
}

/** Gives the settles between a walk and the unit that took it back the chain of that unit, so that releases name it. */
async function nameTakenBack(
  db: Database,
  units: readonly HistoryUnit[],
  {walk, no, chain}: TakenBack,
): Promise<void> {
  const first = units.find(({tape}) => tape.name === walk)?.no ?? no
  const since = units.filter((unit) => first < unit.no && unit.no < no).map((unit) => unit.chain)
  await db.run(
    `update history.raw.settle set tape_head = $1 where tape_head in (select unnest(from_json($2, '["varchar"]')))`,
    [chain, JSON.stringify(since)],
  )
}

const findTakenBack = (takenBack: readonly TakenBack[], {tape, no}: HistoryUnit) =>
  takenBack.findLast((one) => one.walk === tape.name && no < one.no)

/** When the rows of a unit were recorded; null if it settled nothing. */
function findSettled(unit: HistoryUnit): string | null {
  const {outcome, recorded_at} = readFrames(unit).outcome
  return outcome === 'settled' && recorded_at !== undefined ? String(recorded_at) : null
}

/** A walk, or all that a day brought, of which something was applied. Its chain is not known yet. @throws `UNKNOWN_NAME` */
function requireWalk(units: readonly HistoryUnit[], without: Pick<TakenBack, 'walk' | 'why'>): TakenBack {
  const {walk} = without
  const own = units.filter(({tape, kind}) => tape.name === walk && kind !== 'without')
  const outcomes = own.map((unit) => readFrames(unit).outcome.outcome)
  if (outcomes.includes('settled')) return {...without, no: Number.POSITIVE_INFINITY, chain: ''}
  throw newError(
    'UNKNOWN_NAME',
    `Walk '${walk}' in --without: ${own.length > 0 ? `it was ${outcomes.at(-1)}` : 'no tape of it is here, `prune` removes them after LOANTAPE_TAPE_DAYS'}; expected one that was applied.`,
    {next: "`loantape query 'select * from mart.run'` lists the walks."},
  )
}

/** This also migrates its tables. */
async function isOpenable(config: Config, folder: DataFolder, world: World): Promise<boolean> {
  if (!existsSync(folder.warehouse)) return false
  try {
    await using _ = await openWarehouse(folder, world, config)
    return true
  } catch (error) {
    if (codeOf(error) !== 'WAREHOUSE_UNREADABLE') throw error
    return false
  }
}

async function putInPlace(
  folder: DataFolder,
  {temporary, how}: {temporary: string; how: Parameters<typeof setAside>[2]},
  {maxWaitMinutes}: Config,
  world: World,
): Promise<string[]> {
  using _lock = await lockWarehouse(folder, 'write', world, maxWaitMinutes)
  const now = world.realClock.now()
  const former = [folder.warehouse, `${folder.warehouse}.wal`].filter((file) => existsSync(file))
  // Others look for the warehouse before they wait for its lock, so the file is never missing.
  const aside = former.map((file) => setAside(file, now, how, linkOrMove))
  // The last build goes too: no `history_id` covers mapped fields, and a rebuild may know more of their past.
  for (const file of [folder.lastBuild, `${folder.warehouse}.wal`]) rmSync(file, {force: true})
  moveIntoPlace(temporary, folder.warehouse)
  return aside
}

/** Plans a catch-up as {@link planCatchUp} does, and carries it out unless there are problems. */
export async function compareWarehouse(
  config: Config,
  {folder, stateDb}: {folder: DataFolder; stateDb: StateDb},
  world: World,
): Promise<Disagreement[] | null> {
  const plan = await planCatchUp(config, {folder, stateDb}, world)
  if (!plan) return null
  if (!plan.isBehind || plan.problems.length > 0) return plan.problems
  if (!existsSync(folder.warehouse) || plan.takenBack !== undefined) {
    const reason =
      plan.takenBack === undefined ? 'it is missing' : `it is from before ${plan.takenBack} was taken back`
    world.log.warn({file: folder.warehouse, reason}, 'the warehouse is computed again from the tapes')
    await rebuildWarehouse(config, {isApplied: true}, world)
    return []
  }
  try {
    await withRun(folder.stateDb, 'catch-up', world, async (run) => {
      const key = findReadKey(config, folder)
      for (let isBehind = true; isBehind; await giveBackMemory()) {
        await using db = await openWarehouse(folder, run.world, config)
        isBehind = await catchUpWarehouse(key, {folder, stateDb: run.stateDb, db}, run.world, UNITS_AT_ONCE)
      }
      return {outcome: 'caught up'}
    })
    return []
  } catch (error) {
    // A run that began meanwhile catches up itself.
    if (codeOf(error) === 'RUN_IN_PROGRESS') return null
    throw error
  }
}
