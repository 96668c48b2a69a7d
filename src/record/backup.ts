import {
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
} from 'node:fs'
import {basename, dirname, join, relative, resolve} from 'node:path'
import {backup, DatabaseSync} from 'node:sqlite'
import {z} from 'zod'
import type {Config} from '../core/config.ts'
import {type LoantapeError, messageOf, newError} from '../core/errors.ts'
import {GENERATOR, removeAbandoned, WRITER_MARK} from '../core/process.ts'
import type {World} from '../core/types.ts'
import {
  type DataFolder,
  dataFolderAt,
  isInside,
  requireNewFolder,
  requireOwnPlace,
  requireWritable,
} from '../store/data-folder.ts'
import {digestFile, moveIntoPlace, syncToDisk, writeFileAtomically} from '../store/files.ts'
import {findTapeKey} from '../store/recorded.ts'
import {withRun} from '../store/runs.ts'
import {RESTORING} from '../store/state-db.ts'
import {computeMac, type TapeKey} from '../store/tape-format.ts'
import {openWarehouse} from '../store/warehouse.ts'
import {findReadKey} from '../sync/tapes.ts'

const MANIFEST = 'manifest.json'
const FORMAT = 'loantape backup 1'

const manifestSchema = z.object({
  format: z.literal(FORMAT),
  generator: z.string(),
  made_at: z.string(),
  /** Fingerprint of the key that opens the tapes, which is not in the backup. */
  tape_key: z.string().nullable(),
  files: z.array(z.object({path: z.string(), bytes: z.number(), sha256: z.string()})),
  /** HMAC-SHA256 of all this under that key, so that nobody without it can make or change a backup; null where it was not at hand. */
  mac: z.string().nullable(),
})
type Manifest = z.output<typeof manifestSchema>

/** The MAC of a manifest, over its fields in the order of the schema. */
function macOf({mac: _, ...fields}: Manifest, key: TapeKey): string {
  return computeMac(key, 'loantape backup manifest', JSON.stringify(fields))
}

/** What a backup came to. */
export interface BackupResult {
  run_id: string
  outcome: 'backed_up'
  dir: string
  files: number
  bytes: number
  tape_key: string | null
  /** Whether its manifest carries the MAC of that key. */
  authenticated: boolean
  /** Backups that were removed as older than those to be kept. */
  removed: string[]
}

/**
 * Copies everything that cannot be built again, under the run lock, so that its parts belong together: warehouse, files handed
 * out, tapes, the key of hashes, the mappings of accounts and fields, saved queries, the state database. Each copy is read back and compared. Releases are not among it, nor is the key of tapes,
 * under which the manifest carries a MAC.
 *
 * @param to a folder that is not there yet, or is empty
 * @throws ConfigError `OUT_PLACE`; UnexpectedError `BACKUP_DIFFERS`; LockedError `RUN_IN_PROGRESS`
 */
export async function backUp(config: Config, to: string, world: World): Promise<BackupResult> {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  const dir = requireNewFolder(folder, to, 'backup')
  return withRun(folder.stateDb, 'backup', world, async ({runId, stateDb}) => {
    removeAbandoned(dirname(dir), TEMPORARY)
    const temporary = join(dirname(dir), `${TEMPORARY}${basename(dir)}${WRITER_MARK}`)
    const files: Manifest['files'] = []
    try {
      mkdirSync(temporary, {recursive: true, mode: 0o700})
      if (existsSync(folder.warehouse)) await closeWhole(folder, config, world)
      // Before the tapes: what is issued meanwhile stands on one, from which the copy is brought up to date.
      const stateCopy = await copyStateDb(folder, temporary)
      for (const path of listKept(folder)) {
        const sha256 = await copyVerified(join(folder.root, path), join(temporary, path))
        files.push({path, bytes: statSync(join(temporary, path)).size, sha256})
      }
      const {size} = statSync(stateCopy)
      files.push({path: STATE_DB, bytes: size, sha256: await digestFile(stateCopy)})
      const tape_key = findTapeKey(stateDb) ?? null
      const made_at = new Date(world.realClock.now()).toISOString()
      const key = findReadKey(config, folder)
      const manifest: Manifest = {format: FORMAT, generator: GENERATOR, made_at, tape_key, files, mac: null}
      if (key && key.fingerprint === tape_key) manifest.mac = macOf(manifest, key)
      writeFileAtomically(join(temporary, MANIFEST), `${JSON.stringify(manifest, null, 2)}\n`)
      if (existsSync(dir)) rmdirSync(dir)
      moveIntoPlace(temporary, dir)
      const bytes = files.reduce((total, file) => total + file.bytes, 0)
      return {
        run_id: runId,
        outcome: 'backed_up',
        dir,
        files: files.length,
        bytes,
        tape_key,
        authenticated: manifest.mac !== null,
        removed: [],
      }
    } catch (error) {
      rmSync(temporary, {recursive: true, force: true})
      throw error
    }
  })
}

/** Begins the name of a backup that is being made. */
const TEMPORARY = '.backing-up-'

/** The name of a backup among others. */
const DATED = /^loantape-\d{8}T\d{6}Z$/

/** Makes a backup below a folder, named after the instant, and removes the oldest beyond `kept`. */
export async function backUpDated(
  config: Config,
  {to, kept}: {to: string; kept: number},
  world: World,
): Promise<BackupResult> {
  requireOwnPlace(config, to)
  const stamp = new Date(world.realClock.now()).toISOString().replace(/[-:]|\.\d+/g, '')
  const result = await backUp(config, join(to, `loantape-${stamp}`), world)
  const dated = readdirSync(to).filter((name) => DATED.test(name) && existsSync(join(to, name, MANIFEST)))
  const removed = dated.sort().slice(0, -kept)
  for (const name of removed) rmSync(join(to, name), {recursive: true})
  return {...result, removed}
}

const STATE_DB = 'state.sqlite'

/** What a backup can hold of a data folder, by name. */
const KEPT_NAMES = [
  'warehouse.duckdb',
  'hash.key',
  'exports',
  'tape',
  'fields.json',
  'queries',
  'accounting.json',
  STATE_DB,
]

/** The paths that a backup can hold: what else one names would be put where settings and programs are read from. */
const KEPT_PATH =
  /^(?:warehouse\.duckdb|hash\.key|state\.sqlite|(?:fields|accounting)\.json|(?:exports|tape|queries)\/(?:(?!\.{1,2}\/)[^/\\]+\/)*[^/\\]+)$/

/** The files that are copied as they are, below the data folder. */
function listKept({root}: DataFolder): string[] {
  return KEPT_NAMES.filter((name) => name !== STATE_DB)
    .map((name) => join(root, name))
    .filter((path) => existsSync(path))
    .flatMap((path) => (statSync(path).isDirectory() ? listFiles(path) : [path]))
    .map((path) => relative(root, path))
}

/** Whether there is a file, or a folder that is not empty. */
function holdsFiles(path: string): boolean {
  const stat = statSync(path, {throwIfNoEntry: false})
  return stat?.isDirectory() ? listFiles(path).length > 0 : stat !== undefined
}

/** What a run that died left in the write-ahead log goes into the file. */
async function closeWhole(folder: DataFolder, config: Config, world: World): Promise<void> {
  await using db = await openWarehouse(folder, world, config)
  await db.run('checkpoint warehouse')
}

function listFiles(dir: string): string[] {
  return readdirSync(dir, {recursive: true, withFileTypes: true})
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort()
}

/** Copies a file, and returns the sha256 that both have. */
async function copyVerified(from: string, to: string): Promise<string> {
  mkdirSync(dirname(to), {recursive: true, mode: 0o700})
  copyFileSync(from, to, constants.COPYFILE_FICLONE)
  syncToDisk(to)
  const sha256 = await digestFile(to)
  if ((await digestFile(from)) === sha256) return sha256
  throw newError('BACKUP_DIFFERS', `Copy '${to}' is not what '${from}' holds.`)
}

/** Copies the state database into a folder, and returns where it is. */
async function copyStateDb(folder: DataFolder, dir: string): Promise<string> {
  const copy = join(dir, STATE_DB)
  closeSync(openSync(copy, 'w'))
  {
    using stateDb = new DatabaseSync(folder.stateDb)
    await backup(stateDb, copy)
  }
  using copied = new DatabaseSync(copy)
  // A copy that stands alone, without a log beside it.
  copied.exec('pragma journal_mode = delete')
  // This run, which goes on in the state database that is copied.
  copied.exec('delete from lock; delete from run where ended_at is null')
  const {integrity_check} = z
    .object({integrity_check: z.string()})
    .parse(copied.prepare('pragma integrity_check').get())
  if (integrity_check === 'ok') return copy
  throw newError('BACKUP_DIFFERS', `Copy '${copy}' of the state database is damaged: ${integrity_check}.`, {
    next: 'Run `loantape doctor`, check the disk, then run again.',
  })
}

/** What a restore came to. */
interface RestoreResult {
  outcome: 'restored'
  /** The backup that was brought back. */
  from: string
  files: number
  /** Whether its manifest has the MAC of the key at hand. */
  authenticated: boolean
}

/** What the examination of a backup came to. */
interface BackupExamined extends Omit<RestoreResult, 'outcome'> {
  outcome: 'whole'
  tape_key: string | null
}

/**
 * Compares each file of a backup with its manifest, and the manifest with its MAC where the key of tapes is at hand.
 *
 * @param isTrusted also takes a backup whose manifest has no MAC of the key at hand
 * @throws ConfigError `BACKUP_UNREADABLE`; UnexpectedError `BACKUP_DAMAGED`, `BACKUP_NOT_AUTHENTIC`
 */
export async function examineBackup(
  config: Config,
  from: string,
  {isTrusted = false}: {isTrusted?: boolean} = {},
): Promise<BackupExamined & {paths: string[]}> {
  const dir = resolve(from)
  const manifest = readManifest(dir)
  const {files, tape_key, mac} = manifest
  const key = findReadKey(config, dataFolderAt(config.dataDir))
  const authenticated = key !== undefined && mac === macOf(manifest, key)
  if (key && !authenticated && !isTrusted)
    throw newError(
      'BACKUP_NOT_AUTHENTIC',
      `Manifest of the backup '${dir}' has no MAC of key ${key.fingerprint}: it was changed, made by somebody else, or made under another key or none.`,
    )
  for (const {path, bytes, sha256} of files) {
    const file = join(dir, path)
    if (!KEPT_PATH.test(path) || !isInside(file, dir)) throw createDamaged(dir, path)
    // Whoever made it up may have put a pipe or a device there, which no reading ends.
    const stat = statSync(file, {throwIfNoEntry: false})
    const isWhole = stat?.isFile() && stat.size === bytes && (await digestFile(file)) === sha256
    if (!isWhole) throw createDamaged(dir, path)
  }
  return {
    outcome: 'whole',
    from: dir,
    files: files.length,
    tape_key,
    authenticated,
    paths: files.map(({path}) => path),
  }
}

/** What can be said of who made a backup. */
export const sayAuthentic = ({
  authenticated,
  tape_key,
}: Pick<BackupExamined, 'authenticated' | 'tape_key'>) =>
  authenticated
    ? `Its manifest has the MAC of the key of tapes, ${tape_key}.`
    : 'That nobody changed it is not certain: no MAC of the key of tapes was compared. Whoever can write there could have made it.'

/**
 * Brings the files of a backup into a data folder that has none of them: all into a folder in it, and from there each to its
 * place. As long as that folder is there nothing but another restore opens the data folder.
 *
 * @throws ConfigError `RESTORE_NOT_EMPTY`, `BACKUP_UNREADABLE`; UnexpectedError `BACKUP_DAMAGED`, `BACKUP_NOT_AUTHENTIC`
 */
export async function restoreBackup(
  config: Config,
  from: string,
  trust: {isTrusted?: boolean} = {},
): Promise<RestoreResult & Pick<BackupExamined, 'tape_key'>> {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  const staging = join(folder.root, RESTORING)
  const there = existsSync(staging)
    ? undefined
    : KEPT_NAMES.find((name) => holdsFiles(join(folder.root, name)))
  if (there !== undefined)
    throw newError(
      'RESTORE_NOT_EMPTY',
      `'${there}' in data folder '${folder.root}': expected an empty one for a backup.`,
    )
  const {paths, ...examined} = await examineBackup(config, from, trust)
  rmSync(staging, {recursive: true, force: true})
  for (const path of paths) await copyVerified(join(examined.from, path), join(staging, path))
  for (const name of KEPT_NAMES) {
    // Left by a restore that was killed here.
    rmSync(join(folder.root, name), {recursive: true, force: true})
    if (existsSync(join(staging, name))) renameSync(join(staging, name), join(folder.root, name))
  }
  syncToDisk(folder.root)
  rmSync(staging, {recursive: true})
  return {...examined, outcome: 'restored'}
}

const LONGEST_MANIFEST = 256 * 1024 * 1024

function readManifest(dir: string): Manifest {
  try {
    const stat = statSync(join(dir, MANIFEST))
    if (!stat.isFile() || stat.size > LONGEST_MANIFEST) throw new Error('no manifest of a backup')
    return manifestSchema.parse(JSON.parse(readFileSync(join(dir, MANIFEST), 'utf8')))
  } catch (cause) {
    throw newError(
      'BACKUP_UNREADABLE',
      `Folder '${dir}' is no backup of loantape: its ${MANIFEST} cannot be read (${messageOf(cause).split('\n')[0]}).`,
      {cause},
    )
  }
}

function createDamaged(dir: string, path: string): LoantapeError {
  return newError('BACKUP_DAMAGED', `File '${path}' of the backup '${dir}' is not the one that was written.`)
}
