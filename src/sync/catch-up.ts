import {existsSync} from 'node:fs'
import type {Config} from '../core/config.ts'
import {codeOf, LoantapeError, messageOf} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {type Database, giveBackMemory} from '../store/database.ts'
import {
  type Disagreement,
  findHead,
  findRecorded,
  readFact,
  refuse,
  requireFolderId,
  short,
} from '../store/recorded.ts'
import {findLockHolder, withRun} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import {findReadKey, type TapeKey} from '../store/tape-key.ts'
import {openHistory, openWarehouse, readSettings, type Warehouse, writeSettings} from '../store/warehouse.ts'
import type {Known} from './intake.ts'
import {adoptFields} from './mapped-fields.ts'
import {type HistoryUnit, listUnits, readTakenBack, resumeWalks, settleAgain} from './read-back.ts'
import {rebuildWarehouse, UNITS_AT_ONCE} from './rebuild.ts'
import {createStage} from './stream-tables.ts'
import {listReadableTapes, openTapes, type Tapes} from './tapes.ts'

/** The owner of a warehouse, and the last unit it contains. */
type Stand = Awaited<ReturnType<typeof readStand>>
export async function readStand(folder: DataFolder) {
  await using db = await openHistory(folder)
  return await readSettings(db, 'history')
}

/** A catch-up of the warehouse: the units that it lacks, in order, or why it cannot be brought up to date. */
interface CatchUp {
  units: HistoryUnit[]
  problems: Disagreement[]
  isBehind: boolean
}

/**
 * Compares the warehouse with the record; null if a run is under way, which does this itself, or if the warehouse is damaged,
 * which whoever reads it reports.
 *
 * @param gone tapes to treat as missing
 */
export async function planCatchUp(
  config: Config,
  {folder, stateDb}: {folder: DataFolder; stateDb: StateDb},
  world: World,
  gone: readonly string[] = [],
): Promise<CatchUp | null> {
  if (findLockHolder(stateDb, world)) return null
  const stand = existsSync(folder.warehouse) ? await tryStand(folder) : {}
  return stand ? planFrom(stand, findReadKey(config, folder), {folder, stateDb}, gone) : null
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
  if (!existsSync(folder.warehouse)) {
    world.log.warn({file: folder.warehouse}, 'the warehouse is missing: it is computed again from the tapes')
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
    // A run that began meanwhile does it.
    if (codeOf(error) === 'RUN_IN_PROGRESS') return null
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
 * Opens warehouse and tapes for a run that stores something; first takes up what dead runs had settled or read.
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
  await catchUpWarehouse(tapes.key, {folder, stateDb, db}, world)
  await adoptFields(db, folder, world)
  const known = await resumeWalks({db, tapes}, left, world)
  const opened = opening.move()
  return {db, tapes, ...known, [Symbol.asyncDispose]: () => opened.disposeAsync()}
}

/**
 * Settles again what the tapes hold and an open warehouse lacks, because a run died before storing it or an older file was put
 * back.
 *
 * @returns whether it still lacks some, after `atMost` units
 * @throws ConfigError `STORES_DISAGREE` if it is ahead, belongs to another folder, or its tapes cannot be read
 */
async function catchUpWarehouse(
  key: TapeKey | undefined,
  {folder, stateDb, db}: {folder: DataFolder; stateDb: StateDb; db: Database},
  world: World,
  atMost = Number.POSITIVE_INFINITY,
): Promise<boolean> {
  const stand = await readSettings(db)
  const plan = planFrom(stand, key, {folder, stateDb})
  refuse(folder, plan.problems)
  if (stand.folder_id === undefined) await writeSettings(db, {folder_id: requireFolderId(stateDb)})
  if (!plan.isBehind) return false
  await createStage(db)
  const without = readTakenBack(plan.units)
  const units = plan.units.slice(0, atMost)
  for (const unit of units) await settleAgain(db, unit, without)
  const isLeft = units.length < plan.units.length
  // Not every unit stores something, and the last may have been given up.
  const head = isLeft ? units.at(-1)?.chain : readFact(stateDb, 'history_head')
  await writeSettings(db, {tape_head: head ?? ''})
  world.log.warn(
    {count: units.length, reason: `units ${units[0]?.no} to ${units.at(-1)?.no}`},
    'the warehouse was behind the tapes: their units were settled again',
  )
  return isLeft
}

function planFrom(
  {folder_id: folderId, tape_head: head}: Partial<Stand>,
  key: TapeKey | undefined,
  {folder, stateDb}: {folder: DataFolder; stateDb: StateDb},
  gone: readonly string[] = [],
): CatchUp {
  const own = readFact(stateDb, 'folder_id')
  const isBehind = (head ?? '') !== (readFact(stateDb, 'history_head') ?? '')
  const refuseStand = (problem: string, losses: string[] = []) => ({
    units: [],
    problems: [{store: 'warehouse.duckdb', problem, losses}],
    isBehind,
  })
  if (folderId !== undefined && folderId !== own)
    return refuseStand(
      `it belongs to data folder ${folderId}; tapes and state database are those of ${own ?? 'none'}.`,
    )
  if (!isBehind) return {units: [], problems: [], isBehind}
  const last = head === undefined ? undefined : findRecorded(stateDb, head)
  if (head !== undefined && !last) {
    const {no, chain} = findHead(stateDb)
    return refuseStand(
      `it contains a unit of the record (${short(head)}) that neither tapes nor state database know: they end at unit ${no} (${short(chain)}).`,
      [head],
    )
  }
  const tapes = listReadableTapes(folder, stateDb, key).filter(({unit}) => !gone.includes(unit))
  const {units, lacking} = listUnits(stateDb, tapes, last?.no)
  const [first] = lacking
  if (!first) return {units, problems: [], isBehind}
  return refuseStand(
    `${head === undefined ? 'it is lost or holds nothing: it' : 'it'} lacks unit ${first.no} of the record, whose tape '${first.tape}' is missing or cannot be read. Put a later warehouse from a backup in its place.`,
    lacking.map(({chain}) => chain),
  )
}
