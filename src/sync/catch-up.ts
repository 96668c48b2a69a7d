import {existsSync} from 'node:fs'
import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import type {Config} from '../core/config.ts'
import {codeOf, LoantapeError, messageOf, newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import type {Database} from '../store/database.ts'
import {
  type Disagreement,
  findHead,
  findRecorded,
  findTape,
  isOfActs,
  isPruned,
  listRecorded,
  type RecordedUnit,
  readFact,
  refuse,
  requireFolderId,
  short,
  type TapeRow,
} from '../store/recorded.ts'
import {findLockHolder} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import type {Frame, TapeLine} from '../store/tape.ts'
import {findReadKey, type TapeKey} from '../store/tape-key.ts'
import {isDamage, openHistory, openWarehouse, readSettings, writeSettings} from '../store/warehouse.ts'
import {storeWalk} from './apply.ts'
import {type Intake, type OpenWalks, openIntake, parseBody, type WalkTools} from './intake.ts'
import {adoptFields, readStreams} from './mapped-fields.ts'
import {planChanges} from './plan-changes.ts'
import {endWalk, settleUnit} from './settle.ts'
import {clearStage, createStage} from './stream-tables.ts'
import {isHistory, listReadableTapes, openTapes, parseOutcome, type ReadableTape} from './tapes.ts'

/** Which data folder a warehouse belongs to, and the last unit it contains. */
export async function readStand(folder: DataFolder, world: World) {
  await using db = await openHistory(folder, world)
  return await readSettings(db)
}

/**
 * Null if a run is under way, which compares by itself, or if the warehouse is damaged, which its readers report. `gone` are
 * tapes to treat as missing.
 */
export async function planCatchUp(
  config: Config,
  {folder, stateDb}: {folder: DataFolder; stateDb: StateDb},
  world: World,
  gone: readonly string[] = [],
) {
  if (findLockHolder(stateDb, world)) return null
  const ifDamaged = (error: unknown) => {
    if (codeOf(error) === 'INTERRUPTED') throw error
    if (error instanceof LoantapeError || isDamage(error)) return null
    throw error
  }
  const stand = existsSync(folder.warehouse) ? await readStand(folder, world).catch(ifDamaged) : {}
  return stand && planFrom(stand, findReadKey(config, folder), {folder, stateDb}, gone)
}

/** Opens warehouse and tapes for a run that stores something, and recovers what dead runs left. @throws `STORES_DISAGREE` */
export async function openToSettle(
  config: Config,
  {folder, stateDb}: {folder: DataFolder; stateDb: StateDb},
  world: World,
) {
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
 * Settles again what the tapes hold and an open warehouse lacks: a run died before storing it, or an older file was put back.
 * Returns whether it still lacks units after `atMost`.
 * @throws ConfigError `STORES_DISAGREE` if it is ahead, of another folder, from before a walk was taken back, or its tapes are
 *   unreadable
 */
export async function catchUpWarehouse(
  key: TapeKey | undefined,
  {folder, stateDb, db}: {folder: DataFolder; stateDb: StateDb; db: Database},
  world: World,
  atMost = Number.POSITIVE_INFINITY,
): Promise<boolean> {
  const stand = await readSettings(db)
  const plan = planFrom(stand, key, {folder, stateDb})
  refuse(folder, plan.problems)
  if (plan.takenBack !== undefined)
    throw newError('STORES_DISAGREE', `The warehouse is from before '${plan.takenBack}' was taken back.`, {
      next: 'Run the command again: it first computes the warehouse without it.',
    })
  if (stand.folder_id === undefined) await writeSettings(db, {folder_id: requireFolderId(stateDb)})
  if (!plan.isBehind) return false
  await createStage(db)
  const units = plan.units.slice(0, atMost)
  for (const unit of units) await settleAgain(db, unit)
  const isLeft = units.length < plan.units.length
  // Not every unit stores something, and the last may have been given up.
  const head = isLeft ? units.at(-1)?.chain : readFact(stateDb, 'history_head')
  await writeSettings(db, {tape_head: head})
  const [first, last] = [units[0], units.at(-1)]
  if (first && last)
    world.log.warn(
      {count: units.length, reason: `units ${first.no} to ${last.no}`},
      'the warehouse was behind the tapes: their units were settled again',
    )
  return isLeft
}

function planFrom(
  {folder_id: folderId, tape_head: head}: Awaited<ReturnType<typeof readStand>>,
  key: TapeKey | undefined,
  {folder, stateDb}: {folder: DataFolder; stateDb: StateDb},
  gone: readonly string[] = [],
): {units: HistoryUnit[]; problems: Disagreement[]; isBehind: boolean; takenBack?: string | undefined} {
  const own = readFact(stateDb, 'folder_id')
  const isBehind = (head ?? '') !== (readFact(stateDb, 'history_head') ?? '')
  const refuseStand = (problem: string, losses: string[] = []) => {
    return {units: [], problems: [{store: 'warehouse.duckdb', problem, losses}], isBehind}
  }
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
  const tapes = listReadableTapes(folder, stateDb, key).filter(({name}) => !gone.includes(name))
  const {units, lacking} = listUnits(stateDb, tapes, last?.no)
  const [first] = lacking
  if (!first) {
    const walks = readTakenBack(units).map(({walk}) => walk)
    const copied = listUnits(stateDb, tapes).lacking.at(-1)?.no ?? 0
    const lost = listRecorded(stateDb).find(({tape, no}) => no <= copied && walks.includes(tape))
    if (!lost) return {units, problems: [], isBehind, takenBack: walks[0]}
    return refuseStand(
      `it is from before '${lost.tape}' was taken back, and tapes of that time are gone. Put a later warehouse from a backup in its place.`,
    )
  }
  const row = findTape(stateDb, first.tape)
  const isSealed = row && !isPruned(row) && row.fingerprint !== key?.fingerprint
  const how = isSealed
    ? `is sealed with key ${row.fingerprint}, which is not at hand. Put that key back, or`
    : `${row && isPruned(row) ? 'was removed by `prune`' : 'is missing or cannot be read'}.`
  return refuseStand(
    `${head === undefined ? 'it is lost or holds nothing: it' : 'it'} lacks unit ${first.no} of the record, whose tape '${first.tape}' ${how} ${isSealed ? 'put' : 'Put'} a later warehouse from a backup in its place.`,
    lacking.map(({chain}) => chain),
  )
}

export interface HistoryUnit extends Omit<RecordedUnit, 'tape'> {
  tape: ReadableTape
  /** The chain of the unit before it on its tape. */
  after: string | undefined
}

/** Leaves out units that were given up. `lacking` are those whose tapes cannot be read. */
export function listUnits(
  stateDb: StateDb,
  readable: readonly ReadableTape[],
  from = 0,
): {units: HistoryUnit[]; lacking: RecordedUnit[]} {
  const tapes = new Map(readable.map((tape) => [tape.name, tape]))
  const units: HistoryUnit[] = []
  const lacking: RecordedUnit[] = []
  const chains = new Map<string, string>()
  const sql = 'select what from record_loss where is_in_history = 0'
  const losses = new Set(stateDb.column(z.string(), sql))
  for (const unit of listRecorded(stateDb)) {
    const after = chains.get(unit.tape)
    chains.set(unit.tape, unit.chain)
    if (unit.no <= from || isOfActs(unit.tape)) continue
    const tape = tapes.get(unit.tape)
    if (tape) units.push({...unit, tape, after})
    else if (!losses.has(unit.chain)) lacking.push(unit)
  }
  return {units, lacking}
}

/** The outcome comes last. @throws UnexpectedError `TAPE_DAMAGED` */
function* readUnit({tape, no, chain, after}: HistoryUnit): Generator<TapeLine> {
  let isOwn = after === undefined
  for (const line of tape.lines()) {
    if (isOwn) yield line
    if (line.chain === chain) return
    isOwn ||= line.chain === after
  }
  throw newError('TAPE_DAMAGED', `Tape '${tape.file}': it lacks unit ${no} of the record.`)
}

/** The last begin line of a unit, and its outcome. */
export function readFrames(unit: HistoryUnit): {begin: Frame; outcome: Frame} {
  let begin: Frame = {frame: 'begin'}
  let outcome = begin
  for (const {frame} of readUnit(unit)) {
    if (frame.frame === 'begin') begin = frame
    outcome = frame
  }
  return {begin, outcome}
}

/** The units of tape `walk` before unit `no`, whose chain is `chain`, no longer count. */
export interface TakenBack {
  walk: string
  why: string
  no: number
  chain: string
}

export function readTakenBack(units: readonly HistoryUnit[]): TakenBack[] {
  return units
    .filter(({kind}) => kind === 'without')
    .map((unit) => {
      const {walk, why} = readFrames(unit).begin
      return {walk: String(walk), why: String(why), no: unit.no, chain: unit.chain}
    })
}

const LINES_AT_ONCE = 200

/** After the first problem, the rest of a unit is skipped. */
function createReader(db: Database, streams: readonly Stream[], walks: OpenWalks = new Map()) {
  const read: {kind: string; intake?: Intake | undefined; problem: string | null} = {kind: '', problem: null}
  let taken = 0

  function takeIn(line: TapeLine): void {
    const {frame} = line
    if (frame.frame !== 'begin' || read.intake) {
      read.intake?.take(frame, parseBody(line))
      return
    }
    const intake = openIntake(db, streams, frame)
    if (intake?.kind === 'walk' && walks.has(intake.stream.name))
      throw new Error(`another walk of the ${intake.stream.plural} is under way`)
    read.intake = intake
  }

  return {
    async take(line: TapeLine): Promise<void> {
      const {frame, kind} = line.frame
      // A problem ends with its unit: a day's tape may hold more units, a walk's tape holds only the walk.
      if (frame === 'begin' && read.kind !== 'walk')
        Object.assign(read, {kind: String(kind), intake: undefined, problem: null})
      if (read.problem !== null) return
      try {
        takeIn(line)
      } catch (error) {
        read.problem = messageOf(error)
      }
      taken += 1
      if (read.intake?.kind === 'walk' && taken % LINES_AT_ONCE === 0) await read.intake.stage()
    },
    /** The kind of the last unit, its intake if it is readable and has answers, and the first problem. */
    async finish(): Promise<typeof read> {
      const {kind, intake, problem} = read
      if (problem === null) {
        await intake?.stage()
        return read
      }
      if (intake?.kind === 'walk') await clearStage(db, intake.stream, intake.walk.walkId)
      return {kind, problem}
    },
  }
}

/** Reads back the tapes `left` by dead runs. An open walk resumes where its tape ends; one that cannot be continued is ended. */
async function resumeWalks(
  {db, tapes}: Pick<WalkTools, 'db' | 'tapes'>,
  left: readonly TapeRow[],
  {log}: Pick<World, 'log'>,
) {
  await createStage(db)
  const streams = await readStreams(db)
  const walks: OpenWalks = new Map()
  for (const row of left) {
    const {name} = row
    const reader = createReader(db, streams, walks)
    if (!(await tapes.reopen(row, reader.take))) continue
    const {intake, kind, problem} = await reader.finish()
    if (intake?.kind === 'walk') {
      walks.set(intake.stream.name, intake)
      if (intake.walk.endedAt === null)
        await endWalk({db, tapes, walks}, intake, {state: 'abandoned', how: 'its run died'})
      continue
    }
    if (problem !== null) log.warn({file: name, reason: problem}, 'what a run had read cannot be continued')
    const tape_head = tapes.conclude(name, {outcome: 'abandoned', why: problem ?? 'its run died'})
    if (isHistory(kind, 'abandoned')) await writeSettings(db, {tape_head})
    tapes.finish(name)
  }
  return {streams, walks}
}

/**
 * Settles a unit again from its tape, at its original instant and without the guards. Requires the stage. `takenBack` says why
 * it no longer counts.
 * @throws UnexpectedError `DATA_NEWER` if this version cannot read the tape; `TAPE_DAMAGED`
 */
export async function settleAgain(db: Database, unit: HistoryUnit, takenBack?: string): Promise<void> {
  const reader = createReader(db, await readStreams(db))
  let hashKey: unknown
  let end: Frame = {frame: 'begin'}
  for (const line of readUnit(unit)) {
    end = line.frame
    if (end.frame === 'begin') ({hashKey} = end)
    await reader.take(line)
  }
  const {intake, problem} = await reader.finish()
  const {outcome, why, recorded_at: now, is_certified} = parseOutcome({frame: end})
  if (!isHistory(unit.kind, outcome)) return
  if (outcome === 'settled' && problem !== null)
    throw newError(
      'DATA_NEWER',
      `Tape '${unit.tape.file}' of '${unit.tape.name}' cannot be read by this version: ${problem}.`,
    )
  if (intake && outcome === 'settled' && now !== undefined && takenBack === undefined) {
    await settleUnit(db, intake, {now, conclude: () => unit.chain})
  } else if (intake?.kind === 'walk') {
    // Planned only for the certificate.
    if (is_certified) await planChanges(db, intake.stream, intake.walk)
    const state = outcome === 'refused' ? outcome : 'abandoned'
    const how = takenBack === undefined ? String(why) : `taken back: ${takenBack}`
    await storeWalk(db, intake.stream, intake.walk, {state, how, tapeHead: unit.chain})
  }
  // A unit that stored nothing also counts as contained.
  await writeSettings(db, {
    tape_head: unit.chain,
    ...(intake && hashKey !== undefined && {hash_key: String(hashKey)}),
  })
}
