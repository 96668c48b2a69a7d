import {existsSync} from 'node:fs'
import type {Config} from '../core/config.ts'
import {codeOf, LoantapeError, messageOf} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import type {Database} from '../store/database.ts'
import {findLockHolder} from '../store/lock.ts'
import {
  type Disagreement,
  findHead,
  findRecorded,
  listLosses,
  readFact,
  refuse,
  requireFolderId,
  short,
} from '../store/recorded.ts'
import {withRun} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import {openHistory, openWarehouse, readSettings, type Warehouse, writeSetting} from '../store/warehouse.ts'
import type {Known} from './intake.ts'
import {adoptFields} from './mapped-fields.ts'
import {resumeWalks, settleAgain} from './read-back.ts'
import {rebuildWarehouse} from './rebuild.ts'
import {createStage} from './stream-tables.ts'
import {type HistoryUnit, listReadableTapes, listUnits, readTakenBack} from './tape-units.ts'
import {findReadKey, openTapes, type Tapes} from './tapes.ts'

/** The owner of a warehouse, and the last unit it contains. */
type Stand = Awaited<ReturnType<typeof readStand>>
export async function readStand(folder: DataFolder) {
  await using db = await openHistory(folder)
  return await readSettings(db, 'history')
}

/**
 * Compares the warehouse with the record and settles again what it lacks; null where that is the business of a run under way, or of
 * whoever reads one that is damaged.
 */
export async function compareWarehouse(
  config: Config,
  folder: DataFolder,
  stateDb: StateDb,
  world: World,
): Promise<Disagreement[] | null> {
  const expected = readFact(stateDb, 'history_head') ?? ''
  if (findLockHolder(stateDb, world)) return null
  if (!existsSync(folder.warehouse)) {
    if (expected === '') return []
    world.log.warn({file: folder.warehouse}, 'the warehouse is not there and is computed anew from the tapes')
    await rebuildWarehouse(config, {isApplied: true}, world)
  } else {
    const stand = await tryStand(folder)
    if (!stand) return null
    const {problems} = planCatchUp(config, {folder, stateDb}, stand)
    if (problems.length > 0 || (stand.tape_head ?? '') === expected) return problems
    if (!(await catchUpAlone(config, folder, world))) return null
  }
  return []
}

/** Returns whether it was done: a run that began meanwhile does it itself. */
async function catchUpAlone(config: Config, folder: DataFolder, world: World): Promise<boolean> {
  try {
    await withRun(folder.stateDb, 'catch-up', world, async (run) => {
      await using db = await openWarehouse(folder, run.world, config)
      await catchUpWarehouse(config, {folder, stateDb: run.stateDb, db}, run.world)
      return {outcome: 'caught up'}
    })
    return true
  } catch (error) {
    if (codeOf(error) === 'RUN_IN_PROGRESS') return false
    throw error
  }
}

/** Undefined for a damaged warehouse: commands that need it will say so. */
async function tryStand(folder: DataFolder): Promise<Stand | undefined> {
  try {
    return await readStand(folder)
  } catch (error) {
    if (error instanceof LoantapeError || /could not read|corrupt|checksum/i.test(messageOf(error)))
      return undefined
    throw error
  }
}

/**
 * Opens warehouse and tapes for a run that stores something: what dead runs had settled or read is taken up first.
 *
 * @throws what opening them throws; ConfigError `STORES_DISAGREE`
 */
export async function openToSettle(
  config: Config,
  {folder, stateDb}: {folder: DataFolder; stateDb: StateDb},
  world: World,
): Promise<Known & AsyncDisposable & {db: Warehouse; tapes: Tapes}> {
  await using opening = new AsyncDisposableStack()
  const db = opening.use(await openWarehouse(folder, world, config))
  world.onStep('warehouse opened')
  const tapes = opening.use(openTapes(config, {folder, stateDb}, world))
  const left = tapes.listLeft()
  await catchUpWarehouse(config, {folder, stateDb, db}, world)
  await adoptFields(db, folder, world)
  const known = await resumeWalks({db, tapes}, left, world)
  const opened = opening.move()
  return {db, tapes, ...known, [Symbol.asyncDispose]: () => opened.disposeAsync()}
}

/**
 * Settles again what the tapes hold and an open warehouse lacks: a run died before it was stored, or an older file was put back.
 *
 * @throws ConfigError `STORES_DISAGREE` where it is ahead, another folder's, or the tapes for it cannot be read
 */
async function catchUpWarehouse(
  config: Config,
  {folder, stateDb, db}: {folder: DataFolder; stateDb: StateDb; db: Database},
  world: World,
): Promise<void> {
  const stand = await readSettings(db)
  const {units, problems} = planCatchUp(config, {folder, stateDb}, stand)
  refuse(folder, problems)
  if (stand.folder_id === undefined) await writeSetting(db, 'folder_id', requireFolderId(stateDb))
  const head = readFact(stateDb, 'history_head') ?? ''
  if ((stand.tape_head ?? '') === head) return
  await createStage(db)
  const without = readTakenBack(units)
  for (const unit of units) await settleAgain(db, unit, without)
  // Its last unit may have been given up: then nothing is missing.
  await writeSetting(db, 'tape_head', head)
  world.log.warn(
    {count: units.length, reason: `units ${units[0]?.no} to ${units.at(-1)?.no}`},
    'the warehouse was behind the tapes and was brought up to date',
  )
}

/** The units that a warehouse lacks, in order, or why it cannot be brought up to date. */
function planCatchUp(
  config: Config,
  {folder, stateDb}: {folder: DataFolder; stateDb: StateDb},
  {folder_id: folderId, tape_head: head}: Stand,
): {units: HistoryUnit[]; problems: Disagreement[]} {
  const own = readFact(stateDb, 'folder_id')
  const refuseStand = (problem: string, losses: string[] = []) => ({
    units: [],
    problems: [{store: 'warehouse.duckdb', problem, losses}],
  })
  if (folderId !== undefined && folderId !== own)
    return refuseStand(
      `it belongs to data folder ${folderId}; tapes and state database are those of ${own ?? 'none'}.`,
    )
  if ((head ?? '') === (readFact(stateDb, 'history_head') ?? '')) return {units: [], problems: []}
  const last = head === undefined ? undefined : findRecorded(stateDb, head)
  if (head !== undefined && !last) {
    const {no, chain} = findHead(stateDb)
    return refuseStand(
      `it contains a unit of the record (${short(head)}) that neither tapes nor state database know, which end at unit ${no} (${short(chain)}).`,
      [head],
    )
  }
  const tapes = listReadableTapes(folder, stateDb, findReadKey(config, folder))
  const {units, lacking: unread} = listUnits(stateDb, tapes, last?.no)
  const losses = listLosses(stateDb)
  const lacking = unread.filter(({kind, chain}) => kind !== 'act' && kind !== 'without' && !losses.has(chain))
  const [first] = lacking
  if (!first) return {units, problems: []}
  return refuseStand(
    `it ends before unit ${first.no} of the record, whose tape '${first.tape}' is not there or cannot be read. Put a later warehouse from a backup in its place.`,
    lacking.map(({chain}) => chain),
  )
}
