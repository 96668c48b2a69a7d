import {isUtf8} from 'node:buffer'
import {existsSync, readdirSync} from 'node:fs'
import {join} from 'node:path'
import type {Config} from '../config.ts'
import {CATALOGUE, type Failure, messageOf, newError, UnexpectedError} from '../errors.ts'
import {verifyBatches} from '../export/kept-batches.ts'
import {findCurrentRelease} from '../release/manifest.ts'
import {verifyReleaseFiles, verifyReleaseTables} from '../release/verify-release.ts'
import {hasStateDb, openStateDb} from '../state/state-db.ts'
import {findTape, findTapeKey, listTapes, type TapeRow} from '../state/tape-rows.ts'
import type {TapeKey} from '../tape/key.ts'
import {readLines} from '../tape/read-tape.ts'
import type {World} from '../types.ts'
import {digestFile} from '../warehouse/atomic-file.ts'
import {type DataFolder, dataFolderAt} from '../warehouse/data-folder.ts'
import {verifyWarehouse} from '../warehouse/verify-warehouse.ts'
import {hasWarehouse} from '../warehouse/warehouse.ts'
import {findReadKey, requireReadKey} from './tape-key.ts'

/** What examining everything that is kept came to; `verify --json` prints it. */
export interface VerifyResult {
  outcome: 'whole' | 'damaged'
  /** Tapes that were read, and lines on them. */
  tapes: number
  lines: number
  /** Those of them whose key was given up or is not at hand: only their sha256 is compared. */
  closed: number
  /** Tapes that `prune` removed as old. */
  removed: number
  /** When the first tape that is kept was begun: what came before is proved by history alone. */
  since: string | null
  /** Walks that were applied, files of batches and tables of the current release. */
  walks: number
  batch_files: number
  release_tables: number
  /** Below the data folder. */
  problems: {path: string; problem: string; next?: string | undefined}[]
}

/** Of a folder in which nothing was ever run. */
const NOTHING: VerifyResult = {
  outcome: 'whole',
  tapes: 0,
  lines: 0,
  closed: 0,
  removed: 0,
  since: null,
  walks: 0,
  batch_files: 0,
  release_tables: 0,
  problems: [],
}

/**
 * Examines everything that is kept: the tapes, the certificates and every row of the warehouse, the current release, each
 * batch, the state database.
 */
export async function verifyAll(config: Config, world: World): Promise<VerifyResult> {
  const folder = dataFolderAt(config.dataDir)
  if (!hasStateDb(folder)) return NOTHING
  const tapes = await verifyTapes(config, folder, world)
  const problems = [...tapes.problems]
  const note = (path: string, faults: readonly Failure[]) =>
    problems.push(...faults.map(({problem, next}) => ({path, problem, next})))
  world.onProgress({step: 'warehouse'})
  const {walks, faults} = await tryWarehouse(folder)
  note('warehouse.duckdb', faults)
  world.onProgress({step: 'release'})
  const release = findCurrentRelease(folder)
  if (release) {
    note('current', await verifyReleaseFiles(release))
    note('current', await verifyReleaseTables(release))
  }
  note('state.sqlite', verifyStateDb(folder))
  world.onProgress({step: 'batches'})
  const batches = await verifyBatches(folder)
  note('exports', batches.faults)
  return {
    ...tapes,
    outcome: problems.length > 0 ? 'damaged' : 'whole',
    walks,
    batch_files: batches.files,
    release_tables: release?.manifest.tables.length ?? 0,
    problems,
  }
}

function verifyStateDb({stateDb: path}: DataFolder): Failure[] {
  using stateDb = openStateDb(path)
  const {integrity_check: found} = stateDb.db.prepare('pragma integrity_check(1)').get() ?? {}
  if (found === 'ok') return []
  const problem = `State database '${path}' is damaged: ${String(found).split('\n').at(-1)}.`
  const {next = ''} = CATALOGUE.STATE_UNREADABLE
  return [{code: 'STATE_DAMAGED', problem, next}]
}

async function tryWarehouse(folder: DataFolder): Promise<{walks: number; faults: Failure[]}> {
  try {
    return hasWarehouse(folder) ? await verifyWarehouse(folder) : {walks: 0, faults: []}
  } catch (error) {
    if (!(error instanceof UnexpectedError)) throw error
    return {
      walks: 0,
      faults: [{code: error.code, problem: error.problem, ...(error.next && {next: error.next})}],
    }
  }
}

/**
 * Examines every tape: is it there, is it the file that was finished, does each line follow the one before, is each body what was
 * received, and does each tape follow the one before.
 */
async function verifyTapes(
  config: Config,
  folder: DataFolder,
  world: World,
): Promise<Pick<VerifyResult, 'tapes' | 'lines' | 'closed' | 'removed' | 'since' | 'problems'>> {
  using stateDb = openStateDb(folder.stateDb)
  const rows = listTapes(stateDb)
  const kept = rows.filter(({removed_at}) => removed_at === null)
  const known = new Set(rows.map(({path}) => path))
  const problems = listFiles(folder)
    .filter((path) => !known.has(path))
    .map((path) => ({path, problem: 'the state database knows no tape of this name'}))
  const key = findReadKey(config, folder)
  /** What ends units, on tapes that were read and on those that cannot be any more. */
  const ends = new Set(rows.map(({head}) => head))
  const begun: {path: string; before: string}[] = []
  const isClosed = ({fingerprint}: TapeRow) =>
    key === undefined || (fingerprint !== key.fingerprint && key.fingerprint === findTapeKey(stateDb))
  let lines = 0
  for (const [done, row] of kept.entries()) {
    world.onProgress({step: 'tapes', unit: 'tapes', done, total: kept.length})
    const read = await examine(join(folder.root, row.path), row, isClosed(row) ? undefined : key)
    if ('problem' in read) {
      problems.push({path: row.path, problem: read.problem})
      continue
    }
    lines += read.lines
    for (const end of read.ends) ends.add(end)
    if (read.before !== null) begun.push({path: row.path, before: read.before})
  }
  for (const {path, before} of begun) {
    if (!ends.has(before)) problems.push({path, problem: 'the tape that came before it is not known'})
  }
  return {
    tapes: kept.length,
    lines,
    closed: kept.filter(isClosed).length,
    removed: rows.length - kept.length,
    since: kept[0]?.begun_at ?? null,
    problems,
  }
}

/** What a tape holds that is whole. */
interface Examined {
  lines: number
  /** The end of the tape before it. */
  before: string | null
  /** Chains of the lines that end a unit. */
  ends: string[]
}

/** @param key undefined where it was given up or is not at hand */
async function examine(
  path: string,
  row: TapeRow,
  key: TapeKey | undefined,
): Promise<Examined | {problem: string}> {
  const examined: Examined = {lines: 0, before: null, ends: []}
  if (row.ended_at === null) return examined
  if (!existsSync(path)) return {problem: 'it is not there'}
  if (key && row.fingerprint !== key.fingerprint)
    return {problem: `it is sealed with key ${row.fingerprint}, which is not at hand`}
  if (row.outcome === 'lost' && !key) return examined
  if (row.outcome === 'lost') return {problem: 'it was not whole when its run was ended'}
  if ((await digestFile(path)) !== row.sha256) return {problem: 'it is not the file that was finished'}
  if (!key) return examined
  try {
    for (const {frame, chain} of readLines(path, key)) {
      if (examined.lines === 0 && typeof frame.before === 'string') examined.before = frame.before
      if (frame.frame === 'outcome') examined.ends.push(chain)
      examined.lines += 1
    }
  } catch (error) {
    return {problem: messageOf(error)}
  }
  return examined.ends.at(-1) === row.head ? examined : {problem: 'it does not end as it was finished'}
}

/** The files of the tape folder, below the data folder. */
function listFiles({root, tapes}: DataFolder): string[] {
  if (!existsSync(tapes)) return []
  return readdirSync(tapes, {recursive: true, withFileTypes: true})
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1))
    .sort()
}

/**
 * The lines of one tape as they came, bodies as text, or as base64 where they are none.
 *
 * @throws ConfigError `UNKNOWN_NAME`, `TAPE_KEY_LOST`; UnexpectedError `TAPE_DAMAGED`, `TAPE_KEY_WRONG`
 */
export function* readTape(config: Config, unit: string): Generator<Record<string, unknown>> {
  const folder = dataFolderAt(config.dataDir)
  const path = findPath(folder, unit)
  for (const {frame, sha256, body, chain} of readLines(path, requireReadKey(config, folder))) {
    yield {
      ...frame,
      ...(sha256 && {sha256}),
      chain,
      ...(body && (isUtf8(body) ? {body: body.toString()} : {body_base64: body.toString('base64')})),
    }
  }
}

function findPath(folder: DataFolder, unit: string): string {
  using stateDb = openStateDb(folder.stateDb)
  const row = findTape(stateDb, unit)
  if (row && row.removed_at === null) return join(folder.root, row.path)
  throw newError(
    'UNKNOWN_NAME',
    `Tape '${unit}': ${row ? `removed as old on ${row.removed_at}` : 'there is none of this name'}.`,
    {
      next: 'A walk’s tape has the id of the walk (`loantape query "select walk_id from mart.run"`), a day’s its date.',
    },
  )
}
