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
  listRecorded,
  readFact,
  refuse,
  requireFolderId,
  short,
} from '../store/recorded.ts'
import {withRun} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import {openHistory, openWarehouse, readSettings, writeSetting} from '../store/warehouse.ts'
import {settleAgain} from './read-back.ts'
import {rebuildWarehouse} from './rebuild.ts'
import {createStage} from './stream-tables.ts'
import {listReadableTapes, readTakenBack, readUnits, type TapeUnit} from './tape-units.ts'
import {findReadKey} from './tapes.ts'

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
    const problems = judgeStand(stateDb, stand, expected)
    if (problems.length > 0) return problems
    if ((stand.tape_head ?? '') !== expected) {
      const {problem} = planCatchUp(config, {folder, stateDb}, stand)
      if (problem) return [problem]
      const isDone = await catchUpAlone(config, folder, world)
      if (!isDone) return null
    }
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

function judgeStand(
  stateDb: StateDb,
  {folder_id: folderId, tape_head: head}: Stand,
  expected: string,
): Disagreement[] {
  const own = readFact(stateDb, 'folder_id')
  const store = 'warehouse.duckdb'
  if (folderId !== undefined && folderId !== own) {
    const problem = `it belongs to data folder ${folderId}; tapes and state database are those of ${own ?? 'none'}.`
    return [{store, problem, losses: []}]
  }
  if (head === undefined || head === expected || findRecorded(stateDb, head)) return []
  const {no, chain} = findHead(stateDb)
  const problem = `it contains a unit of the record (${short(head)}) that neither tapes nor state database know, which end at unit ${no} (${short(chain)}).`
  return [{store, problem, losses: [head]}]
}

/**
 * Settles again what the tapes hold and an open warehouse lacks: a run died before it was stored, or an older file was put back.
 *
 * @throws ConfigError `STORES_DISAGREE` where it is ahead, another folder's, or the tapes for it cannot be read
 */
export async function catchUpWarehouse(
  config: Config,
  {folder, stateDb, db}: {folder: DataFolder; stateDb: StateDb; db: Database},
  world: World,
): Promise<void> {
  const stand = await readSettings(db)
  const expected = readFact(stateDb, 'history_head') ?? ''
  refuse(folder, judgeStand(stateDb, stand, expected))
  if (stand.folder_id === undefined) await writeSetting(db, 'folder_id', requireFolderId(stateDb))
  if ((stand.tape_head ?? '') === expected) return
  const {units, without, problem} = planCatchUp(config, {folder, stateDb}, stand)
  if (problem) refuse(folder, [problem])
  await createStage(db)
  for (const unit of units) await settleAgain(db, unit, without)
  // Its last unit may have been given up: then nothing is missing.
  await writeSetting(db, 'tape_head', expected)
  world.log.warn(
    {count: units.length, reason: `units ${units[0]?.no} to ${units.at(-1)?.no}`},
    'the warehouse was behind the tapes and was brought up to date',
  )
}

/** The units that a warehouse lacks, in order, or why they are not available. */
function planCatchUp(
  config: Config,
  {folder, stateDb}: {folder: DataFolder; stateDb: StateDb},
  {tape_head: head}: Stand,
): {units: TapeUnit[]; without: ReadonlyMap<string, string>; problem?: Disagreement} {
  const from = head === undefined ? 0 : (findRecorded(stateDb, head)?.no ?? 0)
  const recorded = listRecorded(stateDb).filter(({no, kind}) => no > from && kind !== 'act')
  const names = new Set(recorded.map(({tape}) => tape))
  const units = listReadableTapes(folder, stateDb, findReadKey(config, folder))
    .filter(({unit}) => names.has(unit))
    .flatMap(readUnits)
    .filter(({no}) => no > from)
    .sort((a, b) => a.no - b.no)
  const plan = {units, without: readTakenBack(units)}
  const readable = new Set(units.map(({no}) => no))
  const losses = listLosses(stateDb)
  const lacking = recorded.filter(
    ({no, kind, chain}) => kind !== 'without' && !readable.has(no) && !losses.has(chain),
  )
  const [first] = lacking
  if (!first) return plan
  const problem = `it ends before unit ${first.no} of the record, whose tape '${first.tape}' is not there or cannot be read. Put a later warehouse from a backup in its place.`
  return {...plan, problem: {store: 'warehouse.duckdb', problem, losses: lacking.map(({chain}) => chain)}}
}
