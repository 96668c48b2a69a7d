import {existsSync, rmSync} from 'node:fs'
import {businessDateOf} from '../clock.ts'
import type {Config} from '../config.ts'
import type {MappedField} from '../contract/mapped-field.ts'
import {LoantapeError, messageOf, newError, UnexpectedError} from '../errors.ts'
import {forgetLastBuild} from '../release/last-build.ts'
import {requireFolderId} from '../state/record.ts'
import {withRun} from '../state/runs.ts'
import type {World} from '../types.ts'
import {moveIntoPlace} from '../warehouse/atomic-file.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../warehouse/data-folder.ts'
import {type Database, openDatabase} from '../warehouse/database.ts'
import {giveBackMemory} from '../warehouse/memory.ts'
import {writeSetting} from '../warehouse/stored-settings.ts'
import {lockWarehouse, openWarehouse, prepareLoad, setAside} from '../warehouse/warehouse.ts'
import {compareTables, requireEverySettle, type TableDifference} from './compare-warehouses.ts'
import {readMappedFields} from './fields-file.ts'
import {takeOver} from './rebuild-base.ts'
import {resettle} from './resettle.ts'
import {restageWalks} from './restage.ts'
import {requireTapeKey} from './tape-key.ts'
import {listReadableTapes, listUnits, type ReadableTape, readTakenBack, type TapeUnit} from './tape-units.ts'
import {openTapes, type Tapes} from './tapes.ts'

/** How a rebuild is asked for. */
export interface RebuildRequest {
  /** Put the new warehouse in the place of the one there is. */
  isApplied?: boolean
  /** Takes a walk back. */
  without?: {walk: string; why: string} | undefined
  /** Keep the fields mapped as the warehouse has them, whatever `fields.json` says by now. */
  keepsFields?: boolean
}

/** The engine gives back all of its memory only when it is closed: so a rebuild of years takes no more of it than one of days. */
const UNITS_AT_ONCE = 20

/** What a rebuild came to. */
export interface RebuildResult {
  outcome: 'equal' | 'different' | 'rebuilt'
  /** Walks, looks, rates and replays that were settled again. */
  units: number
  /** When the first of them was settled; what was stored before was taken over as it is. */
  since: string | null
  /** Null where the warehouse there is cannot be read. */
  differences: TableDifference[] | null
  /** Where the files it replaced are now. */
  set_aside: string[]
}

/**
 * Computes the warehouse anew from the tapes, beside the one there is, and compares the two row by row. Each unit is settled at
 * the instant and for the date it was; what was stored before the first tape is taken over.
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
  // A demo's folder may be examined, too.
  if (isApplied) requireWritable(folder)
  return withRun(folder.stateDb, 'rebuild', outside, async ({stateDb, world}) => {
    world.onProgress({step: 'reading'})
    const key = requireTapeKey(config, folder, stateDb, world)
    await using tapes = openTapes(config, {folder, stateDb}, world)
    const isReadable = await endLeft(config, folder, tapes, world)
    const readable = listReadableTapes(folder, stateDb, key)
    const units = listUnits(stateDb, readable)
    const takenBack = readTakenBack(units)
    if (without) takenBack.set(requireWalk(units, without.walk), without.why)
    const temporary = `${folder.warehouse}.rebuilt`
    const fields = keepsFields ? undefined : readMappedFields(folder)
    const folderId = requireFolderId(stateDb)
    const tools = {config, folder, readable, units, takenBack, fields, temporary, folderId}
    try {
      const {since, differences} = await computeAnew(tools, isReadable, world)
      const result = {units: units.length, since, differences}
      const isEqual = differences?.length === 0
      if (!isApplied || isEqual) {
        return {outcome: isEqual ? 'equal' : 'different', ...result, set_aside: []}
      }
      if (without) {
        // Every rebuild after this one leaves the walk out, too.
        const now = world.clock.now()
        const unit = {said: {kind: 'without', ...without}, lines: []}
        await tapes.settleOfDay(businessDateOf(now, config), unit, (conclude) =>
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

/** What a new warehouse is computed with. */
interface RebuildTools {
  config: Config
  folder: DataFolder
  readable: readonly ReadableTape[]
  units: readonly TapeUnit[]
  takenBack: ReadonlyMap<string, string>
  /** Those to be mapped; as the warehouse has them where undefined. */
  fields: readonly MappedField[] | undefined
  /** Where it is. */
  temporary: string
  folderId: string
}

/** Computes the new warehouse, and compares it with the one there is; one that is damaged inside counts as one that does not open. */
async function computeAnew(
  tools: RebuildTools,
  isReadable: boolean,
  world: World,
): Promise<Pick<RebuildResult, 'since' | 'differences'>> {
  const {config, folder, readable, units, takenBack, fields, temporary, folderId} = tools
  removeDatabase(temporary)
  const settled = units.find(({outcome}) => outcome.outcome === 'settled')?.outcome.recorded_at
  const since = typeof settled === 'string' ? settled : null
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
      await takeOver(db, {units, fields}, {since, isReadable})
      await writeSetting(db, 'folder_id', folderId)
    })
    for (let next = 0; next < units.length; next += UNITS_AT_ONCE) {
      await work(async (db) => {
        for (const [index, unit] of units.slice(next, next + UNITS_AT_ONCE).entries()) {
          await resettle({db, without: takenBack, tapes: readable}, unit)
          report(next + index + 1)
        }
      })
      await giveBackMemory()
    }
    world.onProgress({step: 'comparing'})
    if (isReadable) await work((db) => requireEverySettle(db, units))
    return {since, differences: isReadable ? await work(compareTables) : null}
  } catch (error) {
    const isDamage = !(error instanceof LoantapeError) && /corrupt|checksum|fatal/i.test(messageOf(error))
    if (!isReadable || !isDamage) throw error
    world.log.warn(
      {file: folder.warehouse, reason: messageOf(error)},
      'the warehouse there is cannot be read',
    )
    return computeAnew(tools, false, world)
  }
}

function removeDatabase(path: string): void {
  for (const file of [path, `${path}.wal`]) rmSync(file, {force: true})
}

function requireWalk(units: readonly TapeUnit[], walk: string): string {
  const own = units.filter(({tape}) => tape.unit === walk)
  const unit = own.find(({outcome}) => outcome.outcome === 'settled') ?? own[0]
  if (unit?.outcome.outcome === 'settled') return walk
  throw newError(
    'UNKNOWN_NAME',
    `Walk '${walk}' in --without: ${unit ? `it was ${unit.outcome.outcome}` : 'no tape is of it'}; expected one that was applied.`,
    {next: "`loantape query 'select * from mart.run'` lists the walks."},
  )
}

/**
 * Ends the tapes of runs that died once they had settled, as the next run would; whether there is a warehouse that opens to
 * say which these are. Without it what was to be settled counts as settled.
 */
async function endLeft(config: Config, folder: DataFolder, tapes: Tapes, world: World): Promise<boolean> {
  try {
    if (existsSync(folder.warehouse)) {
      await using db = await openWarehouse(folder, world, config)
      await restageWalks({db, tapes}, world)
      return true
    }
  } catch (error) {
    if (!(error instanceof UnexpectedError && error.code === 'WAREHOUSE_UNREADABLE')) throw error
  }
  await tapes.listLeft()
  return false
}

/** A new warehouse, attached as `warehouse`, and the one there is, as `present`. */
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
    return db
  } catch (error) {
    await db[Symbol.asyncDispose]()
    throw error
  }
}

/** Puts a warehouse in the place of the one there is. */
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
  // What mapped fields said is in no history_id: a rebuild may know more of it.
  forgetLastBuild(folder)
  moveIntoPlace(temporary, folder.warehouse)
  return aside
}
