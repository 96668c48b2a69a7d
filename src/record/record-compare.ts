import {existsSync} from 'node:fs'
import {basename, join} from 'node:path'
import {z} from 'zod'
import {type Act, applyAct, createPerformer, listGivenUp, parseAct} from '../accounting/acts.ts'
import {listBatches, markHandedOver} from '../accounting/issued.ts'
import {JOURNAL_NAMES} from '../accounting/profiles.ts'
import {signedBy} from '../books/close-period.ts'
import {isHandedOver} from '../books/issue.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {listSome} from '../core/text.ts'
import type {World} from '../core/types.ts'
import {type DataFolder, dataFolderAt, hasStores, listNames, requireWritable} from '../store/data-folder.ts'
import {digestFileNow} from '../store/files.ts'
import {
  type Disagreement,
  findHead,
  findRecorded,
  findTape,
  findTapeKey,
  isOfActs,
  listLosses,
  listRecorded,
  listTapes,
  noteTape,
  noteUnit,
  type RecordedUnit,
  readFact,
  refuse,
  requireFolderId,
  short,
  type TapeRow,
  writeFact,
} from '../store/recorded.ts'
import {findCurrentRelease, unlessDamaged} from '../store/release.ts'
import {openStateDb, type StateDb} from '../store/state-db.ts'
import {openTape, readTapeHeader} from '../store/tape.ts'
import {findReadKey, type TapeKey} from '../store/tape-key.ts'
import {planCatchUp, readStand} from '../sync/catch-up.ts'
import {compareWarehouse} from '../sync/rebuild.ts'
import {isBeingWritten, isHistory, listTapeFiles, parseOutcome, readEndOf} from '../sync/tapes.ts'

/** Brings the state database up to date first, if possible. */
export async function listDisagreements(config: Config, world: World): Promise<Disagreement[]> {
  const folder = dataFolderAt(config.dataDir)
  if (!hasStores(folder)) return []
  using stateDb = openStateDb(folder.stateDb)
  const {problems} = compareTapes(config, {folder, stateDb}, world)
  // A state database that could not be computed again does not say whose warehouse this is.
  if (problems.length > 0 && readFact(stateDb, 'folder_id') === undefined) return problems
  return [...problems, ...((await compareWarehouse(config, {folder, stateDb}, world)) ?? [])]
}

/**
 * Goes on although something is missing that other stores name; records on a tape what is given up.
 * @throws ConfigError `RECORD_WHOLE` if nothing is missing
 */
export async function goOn(
  config: Config,
  why: string,
  world: World,
): Promise<{given_up: string[]; problems: string[]}> {
  const folder = requireWritable(dataFolderAt(config.dataDir))
  using stateDb = openStateDb(folder.stateDb)
  const {problems: own, gaps, gone} = compareTapes(config, {folder, stateDb}, world, true)
  const lost = gone.map(({name}) => name)
  const plan = await planCatchUp(config, {folder, stateDb}, world, lost)
  const found = [...own, ...(plan?.problems ?? [])]
  const foreign = found.find(({losses}) => losses.length === 0)
  if (foreign) refuse(folder, [foreign])
  if (found.length + gaps.length === 0)
    throw newError('RECORD_WHOLE', `Data folder '${folder.root}': nothing is missing.`)
  // Units of a missing tape do not count as lost: the warehouse may contain them, and must then not be replaced by one without
  // them.
  const losses = [...new Set(found.flatMap((one) => (one.store === 'tape' ? [] : one.losses)))]
  const head = existsSync(folder.warehouse) ? (await readStand(folder, world)).tape_head : undefined
  const recorded = listRecorded(stateDb)
  const act: Extract<Act, {act: 'went on'}> = {
    act: 'went on',
    ...signedBy(world),
    why,
    tapes: [
      ...gone.map((row) => describeGone(recorded, row)),
      ...gaps.map(({no, kind, chain, tape}) => ({name: tape, path: '', units: [{no, kind, chain}]})),
    ],
    losses,
    history_head: losses.find((what) => what === head),
  }
  const perform = createPerformer(config, {folder, stateDb}, world)
  perform(() => act)
  const problems = [
    ...found.map(({problem}) => problem),
    ...gaps.map(({no}) => `unit ${no} of the record is missing.`),
  ]
  return {given_up: [...listGivenUp(act)], problems}
}

export function describeGone(
  recorded: readonly RecordedUnit[],
  {name, path}: Pick<TapeRow, 'name' | 'path'>,
): {name: string; path: string; units: Omit<RecordedUnit, 'tape'>[]} {
  const units = recorded.filter(({tape}) => tape === name).map(({no, kind, chain}) => ({no, kind, chain}))
  return {name, path, units}
}

/** The current release rests on a unit of the record, and every journal batch on an act. */
function compareOutputs(folder: DataFolder, stateDb: StateDb): Disagreement[] {
  const losses = listLosses(stateDb)
  const isKnown = (what: string) => losses.has(what) || findRecorded(stateDb, what) !== undefined
  const release = unlessDamaged(() => findCurrentRelease(folder))
  const found: Disagreement[] = []
  const head = release?.manifest.tape_head ?? ''
  if (release && head !== '' && !isKnown(head)) {
    const {no, chain} = findHead(stateDb)
    found.push({
      store: 'current',
      problem: `release '${release.manifest.release_id}' rests on a unit of the record that is missing (${short(head)}); tapes and state database end at unit ${no} (${short(chain)}).`,
      losses: [head],
    })
  }
  const issued = listBatches(stateDb).map(({profile, batch_id}) => `${profile}/${batch_id}`)
  const known = new Set([...losses, ...issued])
  const unknown = JOURNAL_NAMES.flatMap((profile) =>
    listNames(join(folder.exports, profile))
      .filter((id) => existsSync(join(folder.exports, profile, id, 'manifest.json')))
      .map((id) => `${profile}/${id}`),
  ).filter((batch) => !known.has(batch))
  if (unknown.length > 0)
    found.push({
      store: 'exports',
      problem: `${quantity(unknown.length, 'journal batch')} that the record does not know: ${listSome(unknown)}. Their entries would be issued once more.`,
      losses: unknown,
    })
  return found
}

/** The state database has the tape as finished and kept. */
const isKept = ({ended_at, removed_at, outcome}: TapeRow) =>
  ended_at !== null && removed_at === null && outcome !== 'lost'

/** Missing or cut off. */
const isMissing = (files: ReadonlyMap<string, number>, row: TapeRow) =>
  isKept(row) && (files.get(row.path) ?? 0) < (row.bytes ?? 0)

/**
 * Reads new tapes, and those longer than the state database knows, and applies the acts on them. Then compares the current
 * release and the batches with both. Changes nothing if there are problems. `fillsGaps` records missing units as gaps.
 */
export function compareTapes(
  config: Config,
  {folder, stateDb}: {folder: DataFolder; stateDb: StateDb},
  {log}: World,
  fillsGaps = false,
): Backlog {
  const key = findReadKey(config, folder)
  const backlog = stateDb.transaction(() => {
    const found = readBacklog(folder, stateDb, {key, fillsGaps})
    if (found.problems.length === 0) storeBacklog(folder, stateDb, found)
    return found
  })
  const {units, problems} = backlog
  if (problems.length > 0) return backlog
  if (units.length > 0)
    log.warn(
      {count: units.length, reason: `units ${units[0]?.no} to ${units.at(-1)?.no}`},
      'the state database was behind the tapes: their units and acts were applied again',
    )
  return {...backlog, problems: compareOutputs(folder, stateDb)}
}

interface FoundUnit extends RecordedUnit {
  previous: string | null
  isHistory: boolean
  act?: Act
}

/** What the tapes have and the state database lacks, and where the two disagree. */
interface Backlog {
  folderId: string | undefined
  /** Tapes that are new to the state database, or longer than it knows. */
  tapes: Exclude<ReturnType<typeof readFound>, string>[]
  /** Units to add to the record, in order. */
  units: FoundUnit[]
  /** Those of `units` that are on no tape. */
  gaps: RecordedUnit[]
  /** Tapes that lack a unit of the record. */
  gone: TapeRow[]
  problems: Disagreement[]
}

const beginSchema = z.object({tape: z.string(), begun_at: z.string(), described: z.string().optional()})

function readBacklog(
  folder: DataFolder,
  stateDb: StateDb,
  {key, fillsGaps}: {key: TapeKey | undefined; fillsGaps: boolean},
): Backlog {
  const files = listTapeFiles(folder)
  const rows = listTapes(stateDb)
  const recorded = listRecorded(stateDb)
  const folderId = readFact(stateDb, 'folder_id')
  const backlog: Backlog = {folderId, tapes: [], units: [], gaps: [], gone: [], problems: []}
  const complain = (problem: string, losses: string[] = []) => {
    backlog.problems.push({store: 'tape', problem, losses})
  }
  const known = new Map(rows.map((row) => [row.path, row]))
  // A state database from a time when a run had left this tape unfinished: a later run ended it.
  const hasNewEnd = (row: TapeRow, size: number) => {
    if (!isBeingWritten(row) || row.fingerprint !== key?.fingerprint) return false
    const {last, bytes} = readEndOf(folder, row, key)
    return last?.frame.frame === 'outcome' && bytes === size && !findRecorded(stateDb, last.chain)
  }
  for (const [path, size] of files) {
    const row = known.get(path)
    if (row && !(isKept(row) ? size > (row.bytes ?? 0) : hasNewEnd(row, size))) continue
    const header = readTapeHeader(join(folder.root, path))
    backlog.folderId ??= header?.folderId
    if (!header) {
      if (!row) complain(`${path} is no tape that this version can read: restore it, or move it away.`)
    } else if (header.folderId !== backlog.folderId) {
      complain(
        `${path} belongs to data folder ${header.folderId}; the state database is that of ${backlog.folderId}.`,
      )
    } else if (header.fingerprint !== key?.fingerprint) {
      complain(
        `the state database does not know ${path}, and its key ${header.fingerprint} is not at hand to read it: put that key back, or move the tape away.`,
      )
    } else {
      const found = readFound(folder, path, key)
      if (typeof found === 'string') complain(`${path}: ${found}.`)
      else backlog.tapes.push(found)
    }
  }
  const acts = backlog.tapes.flatMap(({units}) => units.flatMap(({act}) => act ?? []))
  const gone = acts.flatMap((act) => (act.act === 'tapes pruned' || act.act === 'went on' ? act.tapes : []))
  const expected = rows.filter((row) => !gone.some(({name}) => name === row.name))
  const missing = expected.filter((row) => isMissing(files, row))
  if (missing.length > 0) {
    const head = findHead(stateDb)
    const names = missing.map(({path}) => `${path} is ${files.has(path) ? 'cut off' : 'not there'}`)
    complain(
      `the state database knows ${quantity(missing.length, 'tape')} that ${missing.length === 1 ? 'is' : 'are'} missing or cut off: ${listSome(names)}. It stands at unit ${head.no} of the record (${short(head.chain)}).`,
      recorded.filter(({tape}) => missing.some(({name}) => name === tape)).map(({chain}) => chain),
    )
  }
  backlog.gone.push(...missing)
  for (const row of backlog.problems.length === 0 ? expected.filter(isBeingWritten) : []) {
    const last = recorded.findLast(({tape}) => tape === row.name)
    // The tape of a walk ends with an outcome; the tape of a day may continue after one.
    if (last?.kind !== 'walk' || key?.fingerprint !== row.fingerprint) continue
    if (readEndOf(folder, row, key).last?.chain === last.chain) continue
    complain(`${row.path} lacks unit ${last.no} of the record, its end.`, [last.chain])
    backlog.gone.push(row)
  }
  if (backlog.problems.length === 0 || fillsGaps) chainUp(backlog, recorded, gone, fillsGaps)
  return backlog
}

/** Returns what the state database should hold of a tape, and whether its source was described by `source.json`; or the problem. */
function readFound(folder: DataFolder, path: string, key: TapeKey) {
  const name = basename(path, '.jsonl.zst')
  const units: FoundUnit[] = []
  let [begunAt, isEnded, isDescribed] = ['', false, false]
  let act: Act | undefined
  const {lines, end} = openTape(join(folder.root, path), key)
  for (const line of lines) {
    const {frame} = line
    isEnded = frame.frame === 'outcome'
    if (frame.frame === 'begin') {
      const begin = beginSchema.parse(frame)
      if (begin.tape !== name) return `it is the tape of '${begin.tape}', copied or renamed`
      begunAt ||= begin.begun_at
      isDescribed ||= begin.described !== undefined
      act = undefined
    }
    if (frame.frame === 'act') act = parseAct(line, path)
    if (frame.frame !== 'outcome') continue
    const {no, previous, kind, outcome} = parseOutcome(line)
    const own = {no, previous, tape: name, kind, chain: line.chain, isHistory: isHistory(kind, outcome)}
    units.push({...own, ...(act && {act})})
  }
  const {problem, bytes} = end
  // A tape torn after its last outcome belongs to a killed walk; the next run cuts the rest off.
  if (problem !== null && isEnded) return problem
  if (begunAt === '') return 'it holds nothing: move it away'
  // The tape of a dead run stays open: the next run continues or ends it.
  const ended = isEnded ? {ended_at: begunAt, sha256: digestFileNow(join(folder.root, path))} : {sha256: null}
  const row = {name, path, fingerprint: key.fingerprint, begun_at: begunAt, bytes, ...ended}
  return {row, units, isDescribed}
}

/** Adds the units of the tapes to the backlog, each after the one it names; units whose tapes are gone keep their place. */
function chainUp(
  {tapes, units, gaps, problems}: Backlog,
  recorded: readonly RecordedUnit[],
  gone: readonly ReturnType<typeof describeGone>[],
  fillsGaps: boolean,
): void {
  const standing = new Map(recorded.map((unit) => [unit.no, unit]))
  const all = new Map(
    gone.flatMap(({name, units: own}) => own.map((one) => [one.no, createGone({...one, tape: name})])),
  )
  const goneNos = new Set(all.keys())
  // Tapes that another copy of the folder wrote, and the chains of their units.
  const foreign = new Set<string | null>()
  const refuseForeign = ({tape, chain}: FoundUnit, other?: RecordedUnit) => {
    const isNamed = foreign.has(tape)
    foreign.add(tape).add(chain)
    if (isNamed) return
    const path = tapes.find(({row}) => row.name === tape)?.row.path ?? tape
    const than = other && other.tape !== tape ? ` than ${other.tape}` : ''
    const problem = `${path} is of another copy of this data folder${than}: both have gone on, and only one can. Move the tapes of the other elsewhere.`
    problems.push({store: 'tape', problem, losses: []})
  }
  for (const unit of tapes.flatMap((tape) => tape.units).sort((a, b) => a.no - b.no)) {
    const other = standing.get(unit.no) ?? (goneNos.has(unit.no) ? undefined : all.get(unit.no))
    const isOther = other !== undefined && other.chain !== unit.chain
    if (isOther || foreign.has(unit.previous)) refuseForeign(unit, other)
    else all.set(unit.no, unit)
  }
  if (foreign.size > 0) return
  const added = [...all.values()].filter(({no}) => !standing.has(no)).sort((a, b) => a.no - b.no)
  // The acts on tapes that are gone could only come from the state database of that time.
  const unknown = added.filter(({no, tape}) => goneNos.has(no) && isOfActs(tape))
  if (fillsGaps) gaps.push(...unknown)
  else if (unknown.length > 0)
    problems.push({
      store: 'state.sqlite',
      problem: `it lacks ${quantity(unknown.length, 'act')} of the record on tapes that were given up, from unit ${unknown[0]?.no} on: their entries would be issued, or their months closed, a second time. Put a later state database from a backup in its place.`,
      losses: unknown.map(({chain}) => chain),
    })
  let before = recorded.at(-1)
  for (const unit of added) {
    for (let no = (before?.no ?? 0) + 1; fillsGaps && no < unit.no; no += 1) {
      const chain = (no === unit.no - 1 ? unit.previous : null) ?? `lost ${no}`
      const gap = createGone({no, tape: `lost ${no}`, kind: 'act', chain})
      gaps.push(gap)
      units.push(gap)
      before = gap
    }
    const isNext = unit.no === (before?.no ?? 0) + 1
    const isLinked = goneNos.has(unit.no) || unit.previous === (before?.chain ?? null)
    if (isNext && !isLinked) refuseForeign(unit, before)
    if (foreign.size > 0) return
    if (!isNext) {
      const torn = tapes.flatMap(({row}) => (row.sha256 === null ? row.path : []))
      const where = torn.length > 0 ? `, perhaps on ${listSome(torn)}, cut off or damaged` : ''
      const problem = `unit ${unit.no} of the record, ${unit.tape}, follows ${short(unit.previous)}, and before it there is ${before ? `unit ${before.no}, ${before.tape} (${short(before.chain)})` : 'nothing'}: the units between are missing${where}.`
      problems.push({store: 'tape', problem, losses: []})
      return
    }
    units.push(unit)
    before = unit
  }
}

/** The unit is no longer on any tape. */
const createGone = (unit: RecordedUnit): FoundUnit => ({...unit, previous: null, isHistory: false})

function storeBacklog(folder: DataFolder, stateDb: StateDb, {folderId, units, tapes}: Backlog): void {
  if (folderId !== undefined) writeFact(stateDb, 'folder_id', folderId)
  requireFolderId(stateDb)
  if (tapes.some(({isDescribed}) => isDescribed)) writeFact(stateDb, 'source_described', 'yes')
  // Their paths are not in the order of time.
  const rows = tapes.map(({row}) => row).sort((a, b) => (a.begun_at < b.begun_at ? -1 : 1))
  for (const row of rows) noteTape(stateDb, row)
  for (const {previous: _, isHistory: history, act, ...unit} of units) {
    if (!findTape(stateDb, unit.tape)) {
      // The unit is known only from the act that removed or gave up its tape.
      const gone = {name: unit.tape, path: `tape/${unit.tape}`, fingerprint: '', begun_at: ''}
      const ended = {ended_at: '', bytes: 0, sha256: '', removed_at: ''}
      noteTape(stateDb, {...gone, ...ended})
    }
    noteUnit(stateDb, unit, history)
    if (act) applyAct(stateDb, act)
  }
  if (units.some(({act}) => act)) {
    for (const batch of listBatches(stateDb))
      if (isHandedOver(folder, batch)) markHandedOver(stateDb, batch, true)
  }
  const last = rows.at(-1)
  if (last && findTapeKey(stateDb) === undefined)
    stateDb.insert('tape_key', {fingerprint: last.fingerprint, since: last.begun_at})
}
