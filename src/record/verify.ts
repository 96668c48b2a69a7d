import {isUtf8} from 'node:buffer'
import {createHash, hash} from 'node:crypto'
import {existsSync, readFileSync, statSync} from 'node:fs'
import {basename, join, relative} from 'node:path'
import {gunzipSync} from 'node:zlib'
import {z} from 'zod'
import {applyAct, parseAct} from '../accounting/acts.ts'
import {type IssuedBatch, listBatches} from '../accounting/issued.ts'
import {readBatchFiles} from '../books/issue.ts'
import {verifyRelease} from '../build/verify-release.ts'
import {STREAMS} from '../contract/streams.ts'
import type {Config} from '../core/config.ts'
import {CATALOGUE, explainError, type Fault, isOfKind, messageOf, newError} from '../core/errors.ts'
import {listSome} from '../core/text.ts'
import type {World} from '../core/types.ts'
import {describeRepair, verifyBatches} from '../export/batch.ts'
import {type DataFolder, dataFolderAt} from '../store/data-folder.ts'
import type {Database} from '../store/database.ts'
import {digestFile, isFile, listFilesBelow} from '../store/files.ts'
import {
  findTape,
  findTapeKey,
  isOfActs,
  listRecorded,
  listTapes,
  type RecordedUnit,
  type TapeRow,
} from '../store/recorded.ts'
import {findCurrentRelease} from '../store/release.ts'
import {countRows, describeRow, fillIn, listFiles, readSqlFile, SQL_DIR, splitHeader} from '../store/sql.ts'
import {hasStateDb, openStateDb, type StateDb} from '../store/state-db.ts'
import {readLines} from '../store/tape.ts'
import {findReadKey, requireReadKey, type TapeKey} from '../store/tape-key.ts'
import {hasWarehouse, listRawTables, openHistory} from '../store/warehouse.ts'
import {isBeingWritten, listReadableTapes, parseOutcome} from '../sync/tapes.ts'
import {listDisagreements} from './record-compare.ts'

/** `verify --json` prints it. */
export type VerifyResult = Awaited<ReturnType<typeof verifyAll>>

export async function verifyAll(config: Config, world: World) {
  const folder = dataFolderAt(config.dataDir)
  const disagreements = await listDisagreements(config, world)
  using stateDb = openStateDb(hasStateDb(folder) ? folder.stateDb : ':memory:')
  const tapes = await verifyTapes(config, {folder, stateDb}, world)
  const problems: (Fault & {path: string})[] = [...tapes.problems]
  for (const {store: path, problem} of disagreements) {
    const {next} = CATALOGUE.STORES_DISAGREE
    if (!tapes.problems.some((one) => problem.includes(one.path))) problems.push({path, problem, next})
  }
  const note = (path: string, faults: readonly Fault[]) =>
    problems.push(...faults.map(({problem, next}) => ({path, problem, next})))
  world.onProgress({step: 'warehouse'})
  const warehouse = await reportUnread({walks: 0, faults: []}, () =>
    hasWarehouse(folder) ? verifyWarehouse(folder, world) : undefined,
  )
  note('warehouse.duckdb', warehouse.faults)
  world.onProgress({step: 'release'})
  const current = await reportUnread({tables: 0, faults: []}, async () => {
    const release = findCurrentRelease(folder)
    return release && {tables: release.manifest.tables.length, faults: await verifyRelease(release)}
  })
  note('current', current.faults)
  const {integrity_check: found} = stateDb.db.prepare('pragma integrity_check(1)').get() ?? {}
  if (found !== 'ok') {
    const problem = `State database '${folder.stateDb}' is damaged: ${String(found).split('\n').at(-1)}.`
    note('state.sqlite', [{problem, next: CATALOGUE.STATE_UNREADABLE.next}])
  }
  world.onProgress({step: 'batches'})
  const batches = await verifyBatches(folder)
  note('exports', batches.faults)
  for (const batch of listBatches(stateDb)) note('exports', findIssuedFault(folder, stateDb, batch))
  const outcome: 'whole' | 'damaged' = problems.length > 0 ? 'damaged' : 'whole'
  return {
    ...tapes,
    outcome,
    /** Applied walks; files of batches; tables of the current release. */
    walks: warehouse.walks,
    batch_files: batches.files,
    release_tables: current.tables,
    /** Paths are relative to the data folder. */
    problems,
  }
}

/** No command removes or changes an issued batch. */
function findIssuedFault({exports}: DataFolder, stateDb: StateDb, batch: IssuedBatch): Fault[] {
  const {profile, batch_id} = batch
  const dir = join(exports, profile, batch_id)
  const next = describeRepair(profile, batch_id)
  const fault = (words: string) => [
    {problem: `Batch '${profile}/${batch_id}' was issued, but ${words}.`, next},
  ]
  if (!statSync(dir, {throwIfNoEntry: false})?.isDirectory()) return fault('is missing')
  try {
    const {name = '', text} = readBatchFiles(stateDb, batch).at(-1) ?? {}
    const file = join(dir, name)
    const isSame = !isFile(file) || readFileSync(file, 'utf8') === text
    return isSame ? [] : fault(`its ${name} is another`)
  } catch (error) {
    return [explainError(error)]
  }
}

const FROM_TAPES = 'Run `loantape rebuild`, which says how the warehouse differs from the tapes.'

export async function verifyWarehouse(folder: DataFolder, world: World) {
  await using db = await openHistory(folder, world)
  const walks = await countRows(db, `history.raw.walk where state = 'applied'`)
  return {walks, faults: await examineHistory(db, basename(folder.warehouse))}
}

/** Every table can be read, and no rule of `sql/checks/warehouse` finds rows. */
export async function examineHistory(db: Database, file: string): Promise<Fault[]> {
  await db.run('use history.raw')
  const tables = await listRawTables(db)
  // Reading every value of a table makes the engine verify the checksum of every block.
  const readings = tables.map((table) => ({
    problem: `Rows of table 'raw.${table}'`,
    sql: `select count(*) as records from ${table} as t having count(*) > 0 and bit_xor(hash(t)) is null`,
  }))
  const faults: Fault[] = []
  for (const {problem, sql} of [...readings, ...readRules()]) {
    const note = (words: string) =>
      faults.push({problem: `${problem} in '${file}'${words}.`, next: FROM_TAPES})
    try {
      const rows = await db.all(z.record(z.string(), z.unknown()), sql)
      if (rows.length === 0) continue
      note(`: ${rows.length} wrong, ${listSome(rows.map(describeRow))}`)
    } catch (cause) {
      const words = (messageOf(cause).split('\n')[0] ?? '').replace(/\.$/, '')
      note(` cannot be examined: ${words}`)
    }
  }
  return faults
}

/**
 * Each is a SELECT of wrong rows, with an id first; its header is the problem. One that contains `{name}`, `{plural}` or `{id}`
 * is filled in for each stream.
 */
function readRules() {
  const texts = listFiles(join(SQL_DIR, 'checks/warehouse'), '.sql').map(readSqlFile)
  const filled = texts.flatMap((text) =>
    STREAMS.map(({name, plural, idColumn}) => fillIn(text, {name, plural, id: idColumn})),
  )
  return [...new Set(filled)].map((sql) => ({problem: splitHeader(sql).header.join(' ').slice(3), sql}))
}

/** A store that cannot be read is reported as a fault, and the next is verified even so. */
async function reportUnread<Found extends {faults: Fault[]}>(
  nothing: Found,
  examine: () => Promise<Found | undefined> | undefined,
): Promise<Found> {
  try {
    return (await examine()) ?? nothing
  } catch (error) {
    if (!isOfKind(error, 'unexpected')) throw error
    return {...nothing, faults: [error]}
  }
}

async function verifyTapes(
  config: Config,
  {folder, stateDb}: {folder: DataFolder; stateDb: StateDb},
  world: World,
) {
  const rows = listTapes(stateDb)
  const kept = rows.filter(({removed_at}) => removed_at === null)
  const gone = rows.filter(({removed_at}) => removed_at !== null)
  const lost = gone.filter(({outcome}) => outcome === 'lost')
  const known = new Set(rows.map(({path}) => path))
  const problems: (Fault & {path: string})[] = listFilesBelow(folder.tapes)
    .map((path) => relative(folder.root, path))
    // Those that could be tapes were compared with the state database.
    .filter((path) => !known.has(path) && !path.endsWith('.jsonl.zst'))
    .map((path) => ({path, problem: 'it is no tape.', next: 'Move it elsewhere.'}))
  const key = findReadKey(config, folder)
  const recorded = listRecorded(stateDb)
  const isClosed = ({fingerprint}: TapeRow) =>
    key === undefined || (fingerprint !== key.fingerprint && key.fingerprint === findTapeKey(stateDb))
  let lines = 0
  for (const [done, row] of kept.entries()) {
    world.onProgress({step: 'tapes', unit: 'tapes', done, total: kept.length})
    const tapeKey = isClosed(row) ? undefined : key
    const found = await examine(join(folder.root, row.path), row, {key: tapeKey, recorded})
    const next =
      tapeKey && tapeKey.fingerprint !== row.fingerprint ? CATALOGUE.TAPE_KEY_WRONG.next : undefined
    if (typeof found === 'string') problems.push({path: row.path, problem: found, next})
    else lines += found
  }
  return {
    /** `lines` are those read on kept tapes. */
    tapes: kept.length,
    lines,
    /** Tapes whose key was given up or is not at hand; only their sha256 was compared. */
    closed: kept.filter(isClosed).length,
    /** Tapes that `prune` removed as old. */
    removed: gone.length - lost.length,
    /** Tapes that `tape go-on` gave up. */
    given_up: lost.length,
    /** When the oldest kept tape was begun; for what came before, there is only the warehouse. */
    since: kept[0]?.begun_at ?? null,
    problems,
  }
}

/**
 * `key` is undefined if it was given up or is not at hand; `recorded` are the units of the record, from number 1 on without
 * gaps. Returns the number of lines read, or the problem.
 */
async function examine(
  path: string,
  row: TapeRow,
  {key, recorded}: {key: TapeKey | undefined; recorded: readonly RecordedUnit[]},
): Promise<number | string> {
  if (row.ended_at === null) return 0
  if (!existsSync(path)) return 'it is not there'
  if (!isFile(path)) return 'it is not a file'
  if (key && row.fingerprint !== key.fingerprint)
    return `it is sealed with key ${row.fingerprint}, which is not at hand.`
  if (row.outcome === 'lost') return key ? 'it was not whole when its run was ended' : 0
  if ((await digestFile(path)) !== row.sha256) return 'it is not the file that was finished'
  if (!key) return 0
  let lines = 0
  const ends = new Set<string>()
  try {
    for (const line of readLines(path, key)) {
      lines += 1
      if (line.frame.frame !== 'outcome') continue
      const {no, previous} = parseOutcome(line)
      ends.add(line.chain)
      if (recorded[no - 1]?.chain !== line.chain || (recorded[no - 2]?.chain ?? null) !== previous)
        return `its unit ${no} is not the one of the record`
    }
  } catch (error) {
    return explainError(error).problem.replace(/\.$/, '')
  }
  const lacking = recorded.find(({tape, chain}) => tape === row.name && !ends.has(chain))
  return lacking ? `it lacks unit ${lacking.no} of the record` : lines
}

/** The tables of the state database that only acts fill, with the columns to compare. */
const BOOKS = {
  journal_batch: 'profile, batch_id, period, known_at, issued_at, history_id',
  journal_file: 'batch_no, name, content',
  issued_line: '*',
  closed_period: '*',
  remapped_period: '*',
  period_event: 'period, action, at, who, why',
  note: '*',
}

/**
 * Computes the books from the acts on the tapes. Returns the tables that differ from the state database; undefined if an act
 * cannot be read.
 */
export function compareBooks(config: Config): string[] | undefined {
  const folder = dataFolderAt(config.dataDir)
  using stateDb = openStateDb(folder.stateDb)
  using anew = openStateDb(':memory:')
  const readable = listReadableTapes(folder, stateDb, findReadKey(config, folder))
  const tapes = new Map(readable.map((tape) => [tape.name, tape]))
  for (const {tape} of listRecorded(stateDb).filter((unit) => isOfActs(unit.tape))) {
    const own = tapes.get(tape)
    if (!own) return undefined
    for (const line of own.lines()) if (line.frame.frame === 'act') applyAct(anew, parseAct(line, tape))
  }
  return Object.entries(BOOKS)
    .filter(([table, columns]) => digestBooks(stateDb, table, columns) !== digestBooks(anew, table, columns))
    .map(([table]) => table)
}

/** A digest, since the text of a million rows is longer than any text can be. */
function digestBooks(stateDb: StateDb, table: string, columns: string): string {
  const digest = createHash('sha256')
  const plain = (_: string, value: unknown) =>
    value instanceof Uint8Array ? hash('sha256', gunzipSync(value)) : value
  for (const row of stateDb.db.prepare(`select ${columns} from ${table} order by rowid`).iterate())
    digest.update(JSON.stringify(row, plain))
  return digest.digest('hex')
}

/**
 * Lines are as they were written; a body that is not text comes as base64.
 * @throws ConfigError `UNKNOWN_NAME`, `TAPE_KEY_LOST`, `TAPE_KEY_WRONG`; UnexpectedError `TAPE_DAMAGED`
 */
export function* readTape(config: Config, name: string): Generator<Record<string, unknown>> {
  const folder = dataFolderAt(config.dataDir)
  using stateDb = openStateDb(folder.stateDb)
  const row = findTape(stateDb, name)
  if (row?.removed_at !== null) {
    const gone = row && `${row.outcome === 'lost' ? 'given up' : 'removed as old'} on ${row.removed_at}`
    throw newError('UNKNOWN_NAME', `Tape '${name}': ${gone ?? 'there is none with this name'}.`, {
      next: 'The tape of a walk has its id (`loantape query "select walk_id from mart.run"`), that of a day its date.',
    })
  }
  const key = requireReadKey(config, folder)
  const lines = readLines(join(folder.root, row.path), key, isBeingWritten(row))
  for (const {frame, sha256, body, chain} of lines) {
    yield {
      ...frame,
      ...(sha256 && {sha256}),
      chain,
      ...(body && (isUtf8(body) ? {body: body.toString()} : {body_base64: body.toString('base64')})),
    }
  }
}
