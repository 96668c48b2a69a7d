import {existsSync, rmSync} from 'node:fs'
import {z} from 'zod'
import type {KnownField, MappedField} from '../contract/mapped-field.ts'
import {STREAMS} from '../contract/streams.ts'
import {businessDateOf} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {codeOf, LoantapeError, messageOf, newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../store/data-folder.ts'
import {type Database, giveBackMemory, openDatabase, quoteLiteral} from '../store/database.ts'
import {moveIntoPlace} from '../store/files.ts'
import {readFact, requireFolderId} from '../store/recorded.ts'
import {withRun} from '../store/runs.ts'
import {lockWarehouse, openWarehouse, prepareLoad, setAside, writeSettings} from '../store/warehouse.ts'
import {listKnownFields, readMappedFields, writeKnownFields} from './mapped-fields.ts'
import {
  type HistoryUnit,
  listUnits,
  readFrames,
  readTakenBack,
  resumeWalks,
  settleAgain,
} from './read-back.ts'
import {createStage, rebuildHead, tablesOf} from './stream-tables.ts'
import {listReadableTapes, openTapes, type Tapes} from './tapes.ts'

interface TableDifference {
  table: string
  /** Rows that only the present warehouse has, and rows that only the new one has. */
  only_now: number
  only_rebuilt: number
}

/**
 * Makes sure that every settle is on a tape.
 *
 * @param told when the settles on tapes were recorded
 * @throws UnexpectedError `REBUILD_LOSES`
 */
async function requireEverySettle(db: Database, told: readonly unknown[]): Promise<void> {
  const lost = await db.all(
    z.object({kind: z.string(), recorded_at: z.string()}),
    `select kind, recorded_at from present.raw.settle
     where recorded_at not in (select recorded_at from warehouse.raw.settle)
       and recorded_at not in (select unnest(from_json($1, '["timestamp"]')))
     order by recorded_at`,
    [JSON.stringify(told)],
  )
  if (lost.length === 0) return
  const named = lost.slice(0, 3).map(({kind, recorded_at}) => `${kind} of ${recorded_at}`)
  throw newError(
    'REBUILD_LOSES',
    `The tapes lack ${lost.length} of the warehouse's settles: ${named.join(', ')}${lost.length > 3 ? ', …' : ''}.`,
  )
}

const countsRow = z.object({only_now: z.coerce.number(), only_rebuilt: z.coerce.number()})

async function compareTables(db: Database): Promise<TableDifference[]> {
  const tables = await db.column(
    z.string(),
    `select table_name from duckdb_tables()
     where database_name = 'warehouse' and schema_name = 'raw' order by table_name`,
  )
  const differences: TableDifference[] = []
  for (const table of tables) {
    const [now, rebuilt] = [
      `(${selectCompared('present', table)})`,
      `(${selectCompared('warehouse', table)})`,
    ]
    const counts = await db.one(
      countsRow,
      `select
         (select count(*) from (from ${now} except all from ${rebuilt})) as only_now,
         (select count(*) from (from ${rebuilt} except all from ${now})) as only_rebuilt`,
    )
    if (counts.only_now + counts.only_rebuilt > 0) differences.push({table, ...counts})
  }
  return differences
}

/** SQL of the compared rows: without the times of own pages, which no version keeps, and without pruned places. */
function selectCompared(catalog: 'present' | 'warehouse', table: string): string {
  const rows = `from ${catalog}.raw.${table}`
  if (table.endsWith('_head')) return `select * exclude (detail_at, list_hash) ${rows}`
  if (table !== 'quarantine') return rows
  const kept = 'quarantine_id in (select quarantine_id from present.raw.quarantine where place is not null)'
  return `select * replace (case when ${kept} then place end as place) ${rows}`
}

/**
 * Copies into the empty database `warehouse` what was stored before the first settle of the tapes.
 *
 * @param fields the fields to map; undefined keeps those of the warehouse
 * @param from `since`: `recorded_at` of that settle; `isReadable`: whether the present warehouse can be read, as `present`
 * @throws UnexpectedError `REBUILD_BASE` if it cannot be read
 */
async function takeOver(
  db: Database,
  {units, isWhole, fields}: Pick<RebuildTools, 'units' | 'isWhole' | 'fields'>,
  {since, isReadable}: {since: string | null; isReadable: boolean},
): Promise<void> {
  if (isReadable) {
    await takeOverFields(db, fields, since)
    await takeOverRows(db, units, since)
  } else if (isWhole) {
    await writeKnownFields(
      db,
      (fields ?? []).map((field) => ({...field, since: null})),
    )
  } else {
    throw newError(
      'REBUILD_BASE',
      `The warehouse cannot be read, and the tapes begin ${since === null ? 'nowhere' : `at ${since}`}: what was stored before is on no tape.`,
    )
  }
}

/** The past of a newly mapped field is known only from the tapes. */
async function takeOverFields(
  db: Database,
  fields: readonly MappedField[] | undefined,
  since: string | null,
): Promise<void> {
  const known = await listKnownFields(db, 'present')
  const isOlder = await db.value(
    z.boolean(),
    'select exists (from present.raw.settle where $1::timestamp is null or recorded_at < $1::timestamp)',
    [since],
  )
  const date = (field: MappedField): KnownField => {
    const before = known.find(
      ({name, type, path}) =>
        name === field.name && type === field.type && path.join('\n') === field.path.join('\n'),
    )
    return {...field, since: before ? before.since : isOlder ? since : null}
  }
  await writeKnownFields(db, (fields ?? known).map(date))
}

async function takeOverRows(
  db: Database,
  units: readonly HistoryUnit[],
  since: string | null,
): Promise<void> {
  const before = since === null ? 'true' : `recorded_at < ${quoteLiteral(since)}`
  const names = units.map(({tape}) => quoteLiteral(tape.unit)).join(', ') || `''`
  const isKept = 'walk_id in (select walk_id from warehouse.raw.walk)'
  const isMapped =
    'name in (select name from warehouse.raw.mapped_field semi join present.raw.mapped_field using (name, path, type))'
  const kept: Record<string, string> = {
    walk: `(state = 'applied' and ${before}) or (state in ('refused', 'abandoned') and walk_id not in (${names}))`,
    listing: isKept,
    drift: isKept,
    quarantine: isKept,
    setting: 'true',
    rate: before,
    settle: before,
    deal_extra: `${before} and ${isMapped}`,
  }
  for (const stream of STREAMS) {
    for (const table of [tablesOf(stream).version, tablesOf(stream).confirmation]) {
      if (table !== null) kept[table.split('.').at(-1) ?? ''] = before
    }
  }
  for (const [table, condition] of Object.entries(kept)) {
    await db.run(`insert into warehouse.raw.${table} by name from present.raw.${table} where ${condition}`)
  }
  if (since !== null) {
    await db.run(
      `update warehouse.raw.quarantine set replayed_at = null where replayed_at >= ${quoteLiteral(since)}`,
    )
  }
  for (const stream of STREAMS) await rebuildHead(db, stream)
}

interface RebuildRequest {
  /** Replace the present warehouse by the new one. */
  isApplied?: boolean
  /** Takes a walk back. */
  without?: {walk: string; why: string} | undefined
  /** Keep the mapped fields of the warehouse, whatever `fields.json` says now. */
  keepsFields?: boolean
}

/** Units settled before the engine is closed: only closing it frees its memory, so years need no more than days. */
export const UNITS_AT_ONCE = 20

/** The result of a rebuild. */
export interface RebuildResult {
  outcome: 'equal' | 'different' | 'rebuilt'
  /** Walks, looks, rates and replays that were settled again. */
  units: number
  /** When the first of them was settled; earlier rows were copied unchanged. */
  since: string | null
  /** Null if the present warehouse cannot be read. */
  differences: TableDifference[] | null
  /** Where the files it replaced are now. */
  set_aside: string[]
}

/**
 * Computes the warehouse again from the tapes, beside the present one, and compares the two row by row. Each unit is settled at
 * its original instant and for its original date; what was stored before the first tape is copied.
 *
 * @throws ConfigError `UNKNOWN_NAME`, those of the tapes' key; UnexpectedError `DATA_NEWER`, `REBUILD_BASE`, `REBUILD_LOSES`,
 * `TAPE_DAMAGED`
 */
export async function rebuildWarehouse(
  config: Config,
  {isApplied = false, without, keepsFields = false}: RebuildRequest,
  outside: World,
): Promise<RebuildResult> {
  const folder = dataFolderAt(config.dataDir)
  // A demo's folder can be examined too.
  if (isApplied) requireWritable(folder)
  return withRun(folder.stateDb, 'rebuild', outside, async ({stateDb, world}) => {
    world.onProgress({step: 'reading'})
    using tapes = openTapes(config, {folder, stateDb}, world)
    const isReadable = await endLeft(config, folder, tapes, world)
    const {units: all, lacking} = listUnits(stateDb, listReadableTapes(folder, stateDb, tapes.key))
    const units = all.filter(({no}) => no > (lacking.at(-1)?.no ?? 0))
    const isWhole = lacking.length === 0 && readFact(stateDb, 'history_head') !== undefined
    const takenBack = readTakenBack(units)
    if (without) takenBack.set(requireWalk(units, without.walk), without.why)
    const temporary = `${folder.warehouse}.rebuilt`
    const fields = keepsFields ? undefined : readMappedFields(folder)
    const folderId = requireFolderId(stateDb)
    // The last units may have been given up.
    const head = units.length > 0 || isWhole ? readFact(stateDb, 'history_head') : undefined
    const tools = {config, folder, units, isWhole, head, takenBack, fields, temporary, folderId}
    try {
      const {since, differences} = await computeAnew(tools, isReadable, world)
      const result = {units: units.length, since, differences}
      const isEqual = differences?.length === 0
      if (!isApplied || isEqual) {
        return {outcome: isEqual ? 'equal' : 'different', ...result, set_aside: []}
      }
      if (without) {
        // Every later rebuild leaves the walk out too.
        const now = world.clock.now()
        const said = {kind: 'without', ...without}
        await tapes.settleOfDay(businessDateOf(now, config), said, ({conclude}) =>
          conclude(BigInt(now) * 1000n),
        )
      }
      const set_aside = await putInPlace(folder, temporary, config, world)
      return {outcome: 'rebuilt', ...result, set_aside}
    } finally {
      removeDatabase(temporary)
    }
  })
}

interface RebuildTools {
  config: Config
  folder: DataFolder
  units: readonly HistoryUnit[]
  /** Whether nothing was stored before them. */
  isWhole: boolean
  /** The unit at which the new warehouse stands; undefined if that of the present one. */
  head: string | undefined
  takenBack: ReadonlyMap<string, string>
  /** The fields to map; undefined keeps those of the warehouse. */
  fields: readonly MappedField[] | undefined
  temporary: string
  folderId: string
}

/** Computes the new warehouse and compares it with the present one; a present one with internal damage counts as unreadable. */
async function computeAnew(
  tools: RebuildTools,
  isReadable: boolean,
  world: World,
): Promise<Pick<RebuildResult, 'since' | 'differences'>> {
  const {config, folder, units, head, takenBack, temporary, folderId} = tools
  removeDatabase(temporary)
  const since = findFirstSettle(units)
  const told: unknown[] = []
  const work = async <T>(task: (db: Database) => Promise<T>): Promise<T> => {
    await using db = await openBeside(folder, temporary, {isReadable, memoryMb: config.memoryMb})
    const result = await task(db)
    await db.run('checkpoint warehouse')
    return result
  }
  const report = (done: number) =>
    world.onProgress({step: 'rebuilding', unit: 'units', done, total: units.length})
  try {
    report(0)
    await work(async (db) => {
      await takeOver(db, tools, {since, isReadable})
      await writeSettings(db, {folder_id: folderId})
    })
    for (let next = 0; next < units.length; next += UNITS_AT_ONCE) {
      await work(async (db) => {
        for (const [index, unit] of units.slice(next, next + UNITS_AT_ONCE).entries()) {
          const {recorded_at = []} = await settleAgain(db, unit, takenBack)
          told.push(recorded_at)
          report(next + index + 1)
        }
      })
      await giveBackMemory()
    }
    if (head !== undefined) await work((db) => writeSettings(db, {tape_head: head}))
    world.onProgress({step: 'comparing'})
    if (isReadable) await work((db) => requireEverySettle(db, told.flat()))
    return {since, differences: isReadable ? await work(compareTables) : null}
  } catch (error) {
    const isDamage = !(error instanceof LoantapeError) && /corrupt|checksum|fatal/i.test(messageOf(error))
    if (!isReadable || !isDamage) throw error
    world.log.warn({file: folder.warehouse, reason: messageOf(error)}, 'the present warehouse cannot be read')
    return computeAnew(tools, false, world)
  }
}

/** When the first unit that settled anything was recorded. */
function findFirstSettle(units: readonly HistoryUnit[]): string | null {
  for (const unit of units) {
    const {outcome, recorded_at} = readFrames(unit).outcome
    if (outcome === 'settled' && recorded_at !== undefined) return String(recorded_at)
  }
  return null
}

function removeDatabase(path: string): void {
  for (const file of [path, `${path}.wal`]) rmSync(file, {force: true})
}

function requireWalk(units: readonly HistoryUnit[], walk: string): string {
  const unit = units.find(({tape}) => tape.unit === walk)
  const outcome = unit && readFrames(unit).outcome.outcome
  if (outcome === 'settled') return walk
  throw newError(
    'UNKNOWN_NAME',
    `Walk '${walk}' in --without: ${unit ? `it was ${outcome}` : 'it has no tape'}; expected one that was applied.`,
    {next: "`loantape query 'select * from mart.run'` lists the walks."},
  )
}

/**
 * Ends the tapes of dead runs that had settled, as the next run would. Returns whether the warehouse opens, which tells which
 * those are. If it does not, what was about to be settled counts as settled.
 */
async function endLeft(config: Config, folder: DataFolder, tapes: Tapes, world: World): Promise<boolean> {
  const left = tapes.listLeft()
  if (!existsSync(folder.warehouse)) return false
  try {
    await using db = await openWarehouse(folder, world, config)
    await resumeWalks({db, tapes}, left, world)
    return true
  } catch (error) {
    if (codeOf(error) !== 'WAREHOUSE_UNREADABLE') throw error
    return false
  }
}

async function openBeside(
  folder: DataFolder,
  temporary: string,
  {isReadable, memoryMb}: {isReadable: boolean; memoryMb: number | undefined},
): Promise<Database> {
  const present = {path: folder.warehouse, alias: 'present', readOnly: true}
  const attach = [{path: temporary, alias: 'warehouse'}, ...(isReadable ? [present] : [])]
  const db = await openDatabase({attach, threads: 1})
  try {
    await prepareLoad(db, folder, memoryMb)
    await createStage(db)
    return db
  } catch (error) {
    await db[Symbol.asyncDispose]()
    throw error
  }
}

async function putInPlace(
  folder: DataFolder,
  temporary: string,
  {maxWaitMinutes}: Config,
  world: World,
): Promise<string[]> {
  using _lock = await lockWarehouse(folder, 'write', maxWaitMinutes)
  const now = world.realClock.now()
  const former = [folder.warehouse, `${folder.warehouse}.wal`].filter((file) => existsSync(file))
  const aside = former.map((file) => setAside(file, now))
  // No history_id covers mapped fields, and a rebuild may know more of their past.
  rmSync(folder.lastBuild, {force: true})
  moveIntoPlace(temporary, folder.warehouse)
  return aside
}
