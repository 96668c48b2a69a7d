import {existsSync, readdirSync} from 'node:fs'
import {join} from 'node:path'
import type {Config} from '../config.ts'
import {ConfigError, messageOf} from '../errors.ts'
import {openLedger} from '../ledger/ledger.ts'
import {findTape, listTapes, type TapeRow} from '../ledger/tapes.ts'
import {readTapeKey, type TapeKey} from '../tape/key.ts'
import {readLines} from '../tape/read-tape.ts'
import {digestFile} from '../warehouse/atomic-file.ts'
import {type DataFolder, dataFolderAt} from '../warehouse/data-folder.ts'
import {keyFileOf} from './tape-key.ts'

/** What examining the tapes came to; `verify --json` prints it. */
export interface VerifyResult {
  outcome: 'whole' | 'damaged'
  /** Tapes that were read, and lines on them. */
  tapes: number
  lines: number
  /** Tapes that `prune` removed as old. */
  removed: number
  /** When the first tape that is kept was begun: what came before is proved by history alone. */
  since: string | null
  /** Below the data folder. */
  problems: {path: string; problem: string}[]
}

/**
 * Examines every tape: is it there, is it the file that was finished, does each line follow the one before, is each body what was
 * received, and does each tape follow the one before.
 *
 * @throws ConfigError `TAPE_KEY_LOST`
 */
export async function verifyTapes(config: Config): Promise<VerifyResult> {
  const folder = dataFolderAt(config.dataDir)
  using ledger = openLedger(folder.ledger)
  const rows = listTapes(ledger)
  const kept = rows.filter(({removed_at}) => removed_at === null)
  const known = new Set(rows.map(({path}) => path))
  const problems = listFiles(folder)
    .filter((path) => !known.has(path))
    .map((path) => ({path, problem: 'the ledger knows no tape of this name'}))
  const key = kept.length > 0 ? requireReadKey(config, folder) : undefined
  /** What ends units, on tapes that were read and on those that cannot be any more. */
  const ends = new Set(rows.map(({head}) => head))
  const begun: {path: string; before: string}[] = []
  let lines = 0
  for (const row of kept) {
    const read = await examine(join(folder.root, row.path), row, key as TapeKey)
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
    outcome: problems.length > 0 ? 'damaged' : 'whole',
    tapes: kept.length,
    lines,
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

async function examine(path: string, row: TapeRow, key: TapeKey): Promise<Examined | {problem: string}> {
  if (row.ended_at === null) return {lines: 0, before: null, ends: []}
  if (!existsSync(path)) return {problem: 'it is not there'}
  if (row.fingerprint !== key.fingerprint)
    return {problem: `it is sealed with key ${row.fingerprint}, which is not at hand`}
  if (row.outcome === 'lost') return {problem: 'it was not whole when its run was ended'}
  if ((await digestFile(path)) !== row.sha256) return {problem: 'it is not the file that was finished'}
  const examined: Examined = {lines: 0, before: null, ends: []}
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
 * The key to read tapes with.
 *
 * @throws ConfigError `TAPE_KEY_LOST`
 */
export function requireReadKey(config: Config, folder: DataFolder): TapeKey {
  const file = keyFileOf(config, folder)
  const key = readTapeKey(file, folder.root)
  if (key) return key
  throw new ConfigError({
    code: 'TAPE_KEY_LOST',
    problem: `Key of tapes '${file}': it is not there.`,
    kept: 'Nothing was changed; history, releases and books need no key.',
    next: 'Name the file of the key in LOANTAPE_TAPE_KEY_FILE.',
  })
}

/**
 * The lines of one tape as they came, bodies as text, or as base64 where they are none.
 *
 * @throws ConfigError `TAPE_UNKNOWN`, `TAPE_KEY_LOST`; UnexpectedError `TAPE_DAMAGED`, `TAPE_KEY_WRONG`
 */
export function* readTape(config: Config, unit: string): Generator<Record<string, unknown>> {
  const folder = dataFolderAt(config.dataDir)
  const path = findPath(folder, unit)
  for (const {frame, sha256, body, chain} of readLines(path, requireReadKey(config, folder))) {
    const text = body && new TextDecoder().decode(body)
    const said = text !== undefined && Buffer.from(text).equals(body as Buffer) ? {body: text} : undefined
    yield {
      ...frame,
      ...(sha256 && {sha256}),
      chain,
      ...(body && (said ?? {body_base64: body.toString('base64')})),
    }
  }
}

function findPath(folder: DataFolder, unit: string): string {
  using ledger = openLedger(folder.ledger)
  const row = findTape(ledger, unit)
  if (row && row.removed_at === null) return join(folder.root, row.path)
  throw new ConfigError({
    code: 'TAPE_UNKNOWN',
    problem: `Tape '${unit}': ${row ? `removed as old on ${row.removed_at}` : 'there is none of this name'}.`,
    kept: 'Nothing was changed.',
    next: 'A walk’s tape has the id of the walk (`loantape query "select walk_id from mart.run"`), a day’s its date.',
  })
}
