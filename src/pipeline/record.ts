import {existsSync, readdirSync, statSync} from 'node:fs'
import {basename, join} from 'node:path'
import {z} from 'zod'
import {listAllBatches, markHandedOver} from '../accounting/issued.ts'
import {isHandedOver} from '../accounting/journal-handover.ts'
import {JOURNAL_NAMES} from '../accounting/journal-profiles.ts'
import type {Config} from '../config.ts'
import {LoantapeError, messageOf, newError} from '../errors.ts'
import {quantity} from '../money.ts'
import {findCurrentRelease, type Release} from '../release/manifest.ts'
import {findLockHolder} from '../state/lock.ts'
import {
  findHead,
  findRecorded,
  listLosses,
  listRecorded,
  noteUnit,
  type RecordedUnit,
  readFact,
  requireFolderId,
  writeFact,
} from '../state/record.ts'
import {withRun} from '../state/runs.ts'
import {inStateTransaction, openStateDb, type StateDb} from '../state/state-db.ts'
import {findTape, findTapeKey, listTapes, noteTape, noteTapeKey, type TapeRow} from '../state/tape-rows.ts'
import type {TapeKey} from '../tape/key.ts'
import {readGroups, readTapeHeader} from '../tape/read-tape.ts'
import type {World} from '../types.ts'
import {digestFileNow} from '../warehouse/atomic-file.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../warehouse/data-folder.ts'
import type {Database} from '../warehouse/database.ts'
import {openHistory} from '../warehouse/history.ts'
import {readSetting, writeSetting} from '../warehouse/stored-settings.ts'
import {openWarehouse} from '../warehouse/warehouse.ts'
import {type Act, actSchema, applyAct, createPerformer} from './acts.ts'
import {signedBy} from './period.ts'
import {rebuildWarehouse} from './rebuild.ts'
import {type ResettleTools, resettle} from './resettle.ts'
import {findReadKey} from './tape-key.ts'
import {listReadableTapes, listUnits, readTakenBack, type TapeUnit, textOf} from './tape-units.ts'
import {isHistory, parseOutcome, readLast} from './tapes.ts'

/** Two stores of a data folder that do not tell the same, or one that is not this folder's. */
export interface Disagreement {
  /** Below the data folder: `state.sqlite`, `tape`, `warehouse.duckdb`, `current`, `exports`. */
  store: string
  problem: string
  /** What has to be given up to go on without what is missing: chains of units and ids of batches. */
  losses: string[]
}

/**
 * Makes sure that the stores of a data folder tell the same before anything is read from them or stored. What is behind the tapes is
 * brought up to date from them: the state database, and the warehouse. What is ahead of them, or belongs elsewhere, is refused: the
 * tapes are the record, and going on would book or count something twice, or never.
 *
 * @throws ConfigError `STORES_DISAGREE`; `TAPE_KEY_LOST` where tapes that have to be read cannot be
 */
export async function bringUpToDate(config: Config, world: World): Promise<void> {
  const folder = dataFolderAt(config.dataDir)
  if (!hasStores(folder)) return
  using stateDb = openStateDb(folder.stateDb)
  refuse(folder, catchUpState(config, folder, stateDb, world).problems)
  refuse(folder, await compareWarehouse(config, folder, stateDb, world))
}

/** Everything that the stores of a data folder do not agree on, the state database brought up to date where it can be. */
export async function listDisagreements(config: Config, world: World): Promise<Disagreement[]> {
  const folder = dataFolderAt(config.dataDir)
  if (!hasStores(folder)) return []
  using stateDb = openStateDb(folder.stateDb)
  const {problems} = catchUpState(config, folder, stateDb, world)
  return [...problems, ...(await compareWarehouse(config, folder, stateDb, world))]
}

/**
 * Goes on from what is there although something is missing that other stores name: notes on a tape what was given up.
 *
 * @throws ConfigError `RECORD_WHOLE` where nothing is missing
 */
export async function goOn(
  config: Config,
  why: string,
  world: World,
): Promise<{given_up: string[]; problems: string[]}> {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  using stateDb = openStateDb(folder.stateDb)
  const caught = catchUpState(config, folder, stateDb, world, {fillsGaps: true})
  const found = [...caught.problems, ...(await compareWarehouse(config, folder, stateDb, world))]
  const foreign = found.find(({losses}) => losses.length === 0)
  if (foreign) refuse(folder, [foreign])
  if (found.length + caught.gaps.length === 0)
    throw newError('RECORD_WHOLE', `Data folder '${folder.root}': nothing is missing.`)
  const losses = [...new Set(found.flatMap((one) => one.losses))]
  const isOther = found.some(({store}) => store === 'warehouse.duckdb')
  const recorded = listRecorded(stateDb)
  const gone = listTapes(stateDb).filter((row) => isMissing(folder, row))
  const perform = createPerformer(config, {folder, stateDb}, world)
  const act: Act = {
    act: 'went on',
    ...signedBy(world),
    why,
    tapes: [
      ...gone.map((row) => describeGone(recorded, row)),
      ...caught.gaps.map(({no, kind, chain, tape}) => ({unit: tape, path: '', units: [{no, kind, chain}]})),
    ],
    losses,
    history_head: isOther ? ((await readStand(folder)).head ?? '') : undefined,
  }
  inStateTransaction(stateDb, () => perform(act))
  const problems = [
    ...found.map(({problem}) => problem),
    ...caught.gaps.map(({no}) => `unit ${no} of the record is not there.`),
  ]
  return {given_up: [...losses, ...caught.gaps.map(({no}) => `unit ${no}`)], problems}
}

/** A tape that is gone, with its place in the record. */
export function describeGone(
  recorded: readonly RecordedUnit[],
  {unit, path}: Pick<TapeRow, 'unit' | 'path'>,
): {unit: string; path: string; units: Omit<RecordedUnit, 'tape'>[]} {
  const units = recorded.filter(({tape}) => tape === unit).map(({no, kind, chain}) => ({no, kind, chain}))
  return {unit, path, units}
}

function refuse({root}: DataFolder, [first, ...others]: readonly Disagreement[]): void {
  if (!first) return
  const more = others.length > 0 ? ` (${quantity(others.length, 'more problem')}: \`loantape verify\`.)` : ''
  throw newError('STORES_DISAGREE', `Data folder '${root}', ${first.store}: ${first.problem}${more}`, {
    details: [first, ...others].map(({store, problem}) => ({store, problem})),
  })
}

/** Whether a folder holds anything that a record could be of. */
function hasStores(folder: DataFolder): boolean {
  const {stateDb, tapes, warehouse, releases, exports} = folder
  return [stateDb, tapes, warehouse, releases, exports].some((path) => existsSync(path))
}

/** Beginning of a chain, as messages name it. */
const short = (chain: string | null) => (chain === null ? 'none' : chain.slice(0, 12))

/** The files of tapes and their bytes, by their paths below the data folder. */
function listTapeFiles({root, tapes}: DataFolder): Map<string, number> {
  if (!existsSync(tapes)) return new Map()
  const entries = readdirSync(tapes, {recursive: true, withFileTypes: true})
  const paths = entries
    .filter((entry) => entry.isFile() && entry.name.endsWith('.jsonl.zst'))
    .map((entry) => join(entry.parentPath, entry.name))
  return new Map(paths.map((path) => [path.slice(root.length + 1), statSync(path).size]))
}

/** Whether a tape is finished and kept, as far as the state database knows. */
const isKept = ({ended_at, removed_at, outcome}: TapeRow) =>
  ended_at !== null && removed_at === null && outcome !== 'lost'

function isMissing({root}: DataFolder, row: TapeRow): boolean {
  const size = statSync(join(root, row.path), {throwIfNoEntry: false})?.size ?? 0
  return isKept(row) && size < (row.bytes ?? 0)
}

/**
 * Brings the state database up to date with the tapes: tapes that it does not know, or knows shorter than they are, are read, and
 * the acts on them take effect.
 *
 * @returns what does not fit; then nothing was changed
 */
function catchUpState(
  config: Config,
  folder: DataFolder,
  stateDb: StateDb,
  {log}: World,
  {fillsGaps = false}: {fillsGaps?: boolean} = {},
): {problems: Disagreement[]; gaps: RecordedUnit[]} {
  if (isSameAsTapes(folder, stateDb)) return {problems: compareOutputs(folder, stateDb), gaps: []}
  const key = findReadKey(config, folder)
  const {problems, gaps} = inStateTransaction(stateDb, () => {
    const backlog = readBacklog(folder, stateDb, {key, fillsGaps})
    if (backlog.problems.length > 0) return backlog
    storeBacklog(folder, stateDb, backlog)
    const {units} = backlog
    if (units.length > 0)
      log.warn(
        {count: units.length, reason: `units ${units[0]?.no} to ${units.at(-1)?.no}`},
        'the state database was behind the tapes and was brought up to date',
      )
    return backlog
  })
  return {problems: problems.length > 0 ? problems : compareOutputs(folder, stateDb), gaps}
}

/** Whether the state database knows exactly the tapes that lie there, by name and length. */
function isSameAsTapes(folder: DataFolder, stateDb: StateDb): boolean {
  const files = listTapeFiles(folder)
  const rows = listTapes(stateDb)
  const known = new Map(rows.map((row) => [row.path, row]))
  if (readFact(stateDb, 'folder_id') === undefined || findHead(stateDb).no === 0) return false
  if (rows.some((row) => isKept(row) && files.get(row.path) !== row.bytes)) return false
  if (rows.some((row) => row.ended_at === null && row.removed_at === null)) return false
  return [...files.keys()].every((path) => known.has(path))
}

/** A unit that stands on a tape, and what the tape says of itself. */
interface FoundUnit extends RecordedUnit {
  previous: string | null
  isHistory: boolean
  act?: Act
}

interface Backlog {
  folderId: string | undefined
  /** Those to be added to the record, in order. */
  units: FoundUnit[]
  /** Those of them that are on no tape. */
  gaps: RecordedUnit[]
  /** Tapes that the state database does not know as they are. */
  tapes: FoundTape[]
  problems: Disagreement[]
}

interface FoundTape {
  unit: string
  path: string
  fingerprint: string
  begunAt: string
  units: FoundUnit[]
  bytes: number
  /** Of its last line. */
  chain: string
  outcome: string
  /** Whether its last line ends a unit. */
  isEnded: boolean
}

const beginSchema = z.object({unit: z.string(), kind: z.string(), begun_at: z.string()})

function readBacklog(
  folder: DataFolder,
  stateDb: StateDb,
  {key, fillsGaps}: {key: TapeKey | undefined; fillsGaps: boolean},
): Backlog {
  const files = listTapeFiles(folder)
  const rows = listTapes(stateDb)
  const problems: Disagreement[] = []
  const complain = (store: string, problem: string, losses: string[] = []) =>
    problems.push({store, problem, losses})
  const recorded = listRecorded(stateDb)
  const head = findHead(stateDb)
  let folderId = readFact(stateDb, 'folder_id')

  const missing = rows.filter((row) => isMissing(folder, row))
  if (missing.length > 0) {
    const units = recorded.filter(({tape}) => missing.some(({unit}) => unit === tape))
    const names = missing
      .slice(0, 3)
      .map(({path}) => (files.has(path) ? `${path} is cut off` : `${path} is not there`))
    complain(
      'tape',
      `the state database knows ${quantity(missing.length, 'tape')} that ${missing.length === 1 ? 'is' : 'are'} missing or cut off: ${names.join(', ')}${missing.length > 3 ? ', …' : ''}. It stands at unit ${head.no} of the record (${short(head.chain)}).`,
      units.map(({chain}) => chain),
    )
  }

  const known = new Map(rows.map((row) => [row.path, row]))
  const tapes: FoundTape[] = []
  for (const [path, size] of files) {
    const row = known.get(path)
    const header = readTapeHeader(join(folder.root, path))
    const isNew = !row || (isKept(row) && size > (row.bytes ?? 0))
    if (row && !isNew) continue
    if (!header) {
      if (!row) complain('tape', `${path} is no tape.`)
      continue
    }
    folderId ??= header.folderId
    if (header.folderId !== folderId) {
      complain(
        'tape',
        `${path} belongs to data folder ${header.folderId}; the state database is that of ${folderId}.`,
      )
      continue
    }
    if (!key || key.fingerprint !== header.fingerprint) {
      complain(
        'tape',
        `the state database does not know ${path}, and its key ${header.fingerprint} is not at hand to read it.`,
      )
      continue
    }
    const found = readFound(folder, path, key)
    if (typeof found === 'string') complain('tape', `${path}: ${found}.`)
    else tapes.push(found)
  }
  if (key && problems.length === 0) checkLeft(folder, stateDb, key, complain)
  const {units, gaps} =
    problems.length > 0 && !fillsGaps
      ? {units: [], gaps: []}
      : chainUp(recorded, tapes, {complain, fillsGaps})
  return {folderId, units, gaps, tapes, problems}
}

/** A tape that is being written must hold what the record says of it. */
function checkLeft(
  folder: DataFolder,
  stateDb: StateDb,
  key: TapeKey,
  complain: (store: string, problem: string, losses: string[]) => void,
): void {
  const recorded = listRecorded(stateDb)
  for (const row of listTapes(stateDb)) {
    if (row.ended_at !== null || row.removed_at !== null || row.fingerprint !== key.fingerprint) continue
    const last = recorded.findLast(({tape}) => tape === row.unit)
    // A tape of a walk ends with its outcome; that of a day may go on after one.
    if (last?.kind !== 'walk') continue
    if (readLast(folder, row, key)?.chain !== last.chain)
      complain('tape', `${row.path} lacks unit ${last.no} of the record, its end.`, [last.chain])
  }
}

/** What a tape says; what is wrong with it as text. */
function readFound(folder: DataFolder, path: string, key: TapeKey): FoundTape | string {
  const file = join(folder.root, path)
  const unit = basename(path, '.jsonl.zst')
  const tape: FoundTape = {
    ...{unit, path, fingerprint: key.fingerprint, begunAt: '', units: [], bytes: 0, chain: '', outcome: ''},
    isEnded: false,
  }
  let kind = ''
  let act: Act | undefined
  const groups = readGroups(file, key)
  for (let next = groups.next(); ; next = groups.next()) {
    if (next.done) {
      const {problem, bytes, chain} = next.value
      // A walk that was killed may be torn at its end; whoever continues it cuts that off.
      if (problem !== null && tape.isEnded) return problem
      return tape.begunAt === '' ? 'it holds nothing' : {...tape, bytes, chain}
    }
    for (const line of next.value) {
      const {frame} = line
      tape.isEnded = frame.frame === 'outcome'
      if (frame.frame === 'begin') {
        const begin = beginSchema.parse(frame)
        if (begin.unit !== unit) return `it is the tape of '${begin.unit}', copied or renamed`
        tape.begunAt ||= begin.begun_at
        kind = begin.kind
        act = undefined
      }
      if (frame.frame === 'act') act = actSchema.parse(JSON.parse(textOf(line)))
      if (frame.frame !== 'outcome') continue
      const {no, previous, outcome} = parseOutcome(line)
      const history = isHistory(kind, outcome)
      tape.units.push({
        no,
        previous,
        tape: unit,
        kind,
        chain: line.chain,
        isHistory: history,
        ...(act && {act}),
      })
      tape.outcome = outcome
    }
  }
}

/** Puts units behind the record, each behind the one that it names; those of tapes that are gone knowingly keep their place. */
function chainUp(
  recorded: readonly RecordedUnit[],
  tapes: readonly FoundTape[],
  {
    complain,
    fillsGaps,
  }: {complain: (store: string, problem: string, losses: string[]) => void; fillsGaps: boolean},
): {units: FoundUnit[]; gaps: RecordedUnit[]} {
  const standing = new Map(recorded.map((unit) => [unit.no, unit]))
  const found = tapes.flatMap(({units}) => units).sort((a, b) => a.no - b.no)
  const gone = found.flatMap(({act}) =>
    act?.act === 'tapes pruned' || act?.act === 'went on'
      ? act.tapes.flatMap(({unit, units}) =>
          units.map((one) => ({...one, tape: unit, previous: null, isHistory: false})),
        )
      : [],
  )
  const goneNos = new Set(gone.map(({no}) => no))
  const all = new Map<number, FoundUnit>(gone.map((unit) => [unit.no, unit]))
  for (const unit of found) {
    const other = standing.get(unit.no) ?? (goneNos.has(unit.no) ? undefined : all.get(unit.no))
    if (other && other.chain !== unit.chain) {
      complain(
        'state.sqlite',
        `it has ${other.tape} as unit ${unit.no} of the record (${short(other.chain)}), and the tapes have ${unit.tape} (${short(unit.chain)}): they went on apart from each other. Where the tapes are right, move state.sqlite elsewhere: it is computed anew from them.`,
        [],
      )
      return {units: [], gaps: []}
    }
    all.set(unit.no, unit)
  }
  const units: FoundUnit[] = []
  const gaps: FoundUnit[] = []
  const added = [...all.values()].filter(({no}) => !standing.has(no)).sort((a, b) => a.no - b.no)
  let before = recorded.at(-1)
  for (const unit of added) {
    for (let no = (before?.no ?? 0) + 1; fillsGaps && no < unit.no; no += 1) {
      const chain = no === unit.no - 1 ? (unit.previous ?? `lost ${no}`) : `lost ${no}`
      before = {no, tape: `lost ${no}`, kind: 'act', chain}
      gaps.push({...before, previous: null, isHistory: false})
      units.push({...before, previous: null, isHistory: false})
    }
    const isNext = unit.no === (before?.no ?? 0) + 1
    const isLinked = goneNos.has(unit.no) || unit.previous === (before?.chain ?? null)
    if (!isNext || !isLinked) {
      complain(
        'tape',
        `unit ${unit.no} of the record, ${unit.tape}, follows ${short(unit.previous)}, and before it there is ${before ? `unit ${before.no}, ${before.tape} (${short(before.chain)})` : 'nothing'}: what was between is not there.`,
        [],
      )
      return {units: [], gaps: []}
    }
    units.push(unit)
    before = unit
  }
  return {units, gaps}
}

function storeBacklog(folder: DataFolder, stateDb: StateDb, {folderId, units, tapes}: Backlog): void {
  if (folderId !== undefined) writeFact(stateDb, 'folder_id', folderId)
  requireFolderId(stateDb)
  for (const tape of tapes) {
    const {unit, path, fingerprint, begunAt: begun_at, chain: head, bytes, outcome, isEnded} = tape
    const row = {unit, path, fingerprint, begun_at, bytes}
    const ended = {
      ended_at: begun_at,
      outcome,
      head,
      sha256: isEnded ? digestFileNow(join(folder.root, path)) : '',
    }
    noteTape(stateDb, isEnded ? {...row, ...ended} : row)
  }
  for (const {previous: _, isHistory: history, act, ...unit} of units) {
    if (!findTape(stateDb, unit.tape)) noteGone(stateDb, unit.tape)
    noteUnit(stateDb, unit, history)
    if (act) applyAct(stateDb, act)
  }
  for (const batch of listAllBatches(stateDb))
    if (isHandedOver(folder, batch)) markHandedOver(stateDb, batch, true)
  const last = tapes.toSorted((a, b) => (a.begunAt < b.begunAt ? -1 : 1)).at(-1)
  if (last && findTapeKey(stateDb) === undefined)
    noteTapeKey(stateDb, {fingerprint: last.fingerprint, since: last.begunAt, why: null})
}

/** A tape that is known from what was noted when it went. */
function noteGone(stateDb: StateDb, unit: string): void {
  noteTape(stateDb, {
    ...{unit, path: `tape/${unit}`, fingerprint: '', begun_at: '', ended_at: '', outcome: 'removed'},
    ...{head: '', bytes: 0, sha256: '', removed_at: ''},
  })
}

/** What was handed out must rest on the record: the current release on its units, and every journal batch on an act. */
function compareOutputs(folder: DataFolder, stateDb: StateDb): Disagreement[] {
  const losses = listLosses(stateDb)
  const isKnown = (what: string) => losses.has(what) || findRecorded(stateDb, what) !== undefined
  const release = tryRelease(folder)
  const found: Disagreement[] = []
  const head = release?.manifest.tape_head ?? ''
  if (release && head !== '' && !isKnown(head)) {
    const {no, chain} = findHead(stateDb)
    found.push({
      store: 'current',
      problem: `release '${release.manifest.release_id}' rests on a unit of the record that is not there (${short(head)}); tapes and state database end at unit ${no} (${short(chain)}).`,
      losses: [head],
    })
  }
  const issued = new Set(listAllBatches(stateDb).map(({profile, batch_id}) => `${profile}/${batch_id}`))
  const lying = JOURNAL_NAMES.flatMap((name) => {
    const dir = join(folder.exports, name)
    const ids = existsSync(dir)
      ? readdirSync(dir).filter((id) => !id.startsWith('.') && existsSync(join(dir, id, 'manifest.json')))
      : []
    return ids.map((id) => `${name}/${id}`)
  })
  const unknown = lying.filter((batch) => !issued.has(batch) && !losses.has(batch))
  if (unknown.length > 0)
    found.push({
      store: 'exports',
      problem: `${quantity(unknown.length, 'journal batch')} that the record does not know: ${unknown.slice(0, 3).join(', ')}${unknown.length > 3 ? ', …' : ''}. Their entries would be issued once more.`,
      losses: unknown,
    })
  return found
}

/** One that is damaged is the business of whoever reads it. */
function tryRelease(folder: DataFolder): Release | undefined {
  try {
    return findCurrentRelease(folder)
  } catch (error) {
    if (error instanceof LoantapeError) return undefined
    throw error
  }
}

/** Where a warehouse stands: whose it is, and the last unit that it contains. */
interface Stand {
  folderId: string | undefined
  head: string | undefined
}

async function readStand(folder: DataFolder): Promise<Stand> {
  await using db = await openHistory(folder)
  return {
    folderId: await readSetting(db, 'folder_id', 'history'),
    head: await readSetting(db, 'tape_head', 'history'),
  }
}

/**
 * Compares the warehouse with the record, where its file is not the one that was compared last, and settles again what it lacks. While
 * a run is under way it is that run's business.
 */
async function compareWarehouse(
  config: Config,
  folder: DataFolder,
  stateDb: StateDb,
  world: World,
): Promise<Disagreement[]> {
  const expected = readFact(stateDb, 'history_head') ?? ''
  const see = () => `${describeFile(folder.warehouse)} ${readFact(stateDb, 'history_head') ?? ''}`
  if (see() === readFact(stateDb, 'warehouse_seen')) return []
  if (findLockHolder(stateDb, world)) return []
  if (!existsSync(folder.warehouse)) {
    if (expected === '') return []
    world.log.warn({file: folder.warehouse}, 'the warehouse is not there and is computed anew from the tapes')
    await rebuildWarehouse(config, {isApplied: true, keepsFields: true}, world)
  } else {
    const stand = await tryStand(folder)
    if (!stand) return []
    const problems = judgeStand(stateDb, stand, expected)
    if (problems.length > 0) return problems
    if ((stand.head ?? '') !== expected) {
      const {problem} = planCatchUp(config, {folder, stateDb}, stand)
      if (problem) return [problem]
      await withRun(folder.stateDb, 'catch-up', world, async (run) => {
        await using db = await openWarehouse(folder, run.world, config)
        await catchUpWarehouse(config, {folder, stateDb: run.stateDb, db}, run.world)
        return {outcome: 'caught up'}
      })
    }
  }
  writeFact(stateDb, 'warehouse_seen', see())
  return []
}

/** One that is damaged is the business of whoever needs it. */
async function tryStand(folder: DataFolder): Promise<Stand | undefined> {
  try {
    return await readStand(folder)
  } catch (error) {
    if (error instanceof LoantapeError || /could not read|corrupt|checksum/i.test(messageOf(error)))
      return undefined
    throw error
  }
}

function describeFile(path: string): string {
  const stat = statSync(path, {throwIfNoEntry: false})
  return stat ? `${stat.size} ${stat.mtimeMs} ${stat.ino}` : 'none'
}

function judgeStand(stateDb: StateDb, {folderId, head}: Stand, expected: string): Disagreement[] {
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
  const stand = {folderId: await readSetting(db, 'folder_id'), head: await readSetting(db, 'tape_head')}
  const expected = readFact(stateDb, 'history_head') ?? ''
  refuse(folder, judgeStand(stateDb, stand, expected))
  if (stand.folderId === undefined) await writeSetting(db, 'folder_id', requireFolderId(stateDb))
  if ((stand.head ?? '') === expected) return
  const {units, tapes, without, problem} = planCatchUp(config, {folder, stateDb}, stand)
  if (problem) refuse(folder, [problem])
  for (const unit of units) await resettle({db, without, tapes}, unit)
  world.log.warn(
    {count: units.length, reason: `units ${units[0]?.no} to ${units.at(-1)?.no}`},
    'the warehouse was behind the tapes and was brought up to date',
  )
}

/** The units that a warehouse lacks, in order; or why they cannot be had. */
function planCatchUp(
  config: Config,
  {folder, stateDb}: {folder: DataFolder; stateDb: StateDb},
  {head}: Stand,
): Omit<ResettleTools, 'db'> & {units: TapeUnit[]; problem?: Disagreement} {
  const from = head === undefined ? 0 : (findRecorded(stateDb, head)?.no ?? 0)
  const tapes = listReadableTapes(folder, stateDb, findReadKey(config, folder))
  const all = listUnits(stateDb, tapes)
  const plan = {units: all.filter(({no}) => no > from), tapes, without: readTakenBack(all)}
  const readable = new Set(plan.units.map(({no}) => no))
  const lacking = listRecorded(stateDb).filter(
    ({no, kind}) => no > from && kind !== 'act' && kind !== 'without' && !readable.has(no),
  )
  const [first] = lacking
  if (!first) return plan
  const problem = `it ends before unit ${first.no} of the record, whose tape '${first.tape}' is not there or cannot be read. Put a later warehouse from a backup in its place.`
  return {...plan, problem: {store: 'warehouse.duckdb', problem, losses: lacking.map(({chain}) => chain)}}
}
