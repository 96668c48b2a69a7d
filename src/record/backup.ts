import {createHmac, hkdfSync, randomUUID} from 'node:crypto'
import {constants, copyFileSync, existsSync, readFileSync, renameSync, rmSync, statSync} from 'node:fs'
import {basename, dirname, join, relative, resolve} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {setImmediate as nextTurn} from 'node:timers/promises'
import {isDeepStrictEqual} from 'node:util'
import {z} from 'zod'
import {requireBuilt} from '../build/build.ts'
import type {Config} from '../core/config.ts'
import {messageOf, newError, tolerate} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {GENERATOR} from '../core/process.ts'
import {copyDatabase} from '../core/sqlite.ts'
import {shorten} from '../core/text.ts'
import type {World} from '../core/types.ts'
import {
  type DataFolder,
  dataFolderAt,
  isInside,
  listNames,
  RESTORING,
  requireNewFolder,
  requireOwnPlace,
  requireWritable,
} from '../store/data-folder.ts'
import {
  beginFolder,
  createFolder,
  digestFile,
  findFileFault,
  listFilesBelow,
  shareWithFolder,
  syncToDisk,
  takeFileLock,
  writeFileAtomically,
} from '../store/files.ts'
import {findHead, findTapeKey, isOfActs, listTapes, requireFolderId} from '../store/recorded.ts'
import {type ReleaseManifest, readRelease, unlessDamaged} from '../store/release.ts'
import {acquireLock, withRun} from '../store/runs.ts'
import {openStateDb, type StateDb} from '../store/state-db.ts'
import {findReadKey, keyFileOf, type TapeKey} from '../store/tape-key.ts'
import {hasWarehouse, openWarehouse} from '../store/warehouse.ts'
import {verifyAll} from './verify.ts'

const MANIFEST = 'manifest.json'
const FORMAT = 'loantape backup 1'
/** What a manifest of any version has. */
const formatSchema = z.object({format: z.string().regex(/^loantape backup \d+$/)})

const manifestSchema = z.object({
  format: z.literal(FORMAT),
  generator: z.string(),
  made_at: z.string(),
  /** The fingerprint of the tape key, which is not in the backup. */
  tape_key: z.string().nullable(),
  folder_id: z.string(),
  files: z.array(z.object({path: z.string(), bytes: z.number(), sha256: z.string()})),
  /**
   * HMAC-SHA256 of the other fields, so that only the owner of the tape key can make or change a backup; null if the key was not
   * at hand.
   */
  mac: z.string().nullable(),
})
type Manifest = z.output<typeof manifestSchema>

export type BackupResult = Awaited<ReturnType<typeof backUp>>

/**
 * Copies everything that cannot be built again. The run lock keeps it consistent; each copy is read back and compared. Releases
 * are left out, and so is the tape key, which makes the MAC of the manifest. `to` is a new or empty folder; `made_at` is when
 * the backup was begun, ISO 8601.
 * @throws ConfigError `OUT_PLACE`; UnexpectedError `BACKUP_DIFFERS`, `TAPE_DAMAGED` (the backup is made even so); LockedError
 *   `RUN_IN_PROGRESS`
 */
export async function backUp(config: Config, to: string, world: World, made_at: string = isoNow(world)) {
  const folder = requireWritable(dataFolderAt(config.dataDir))
  const dir = requireNewFolder(folder, to, 'backup')
  return withRun(folder.stateDb, 'backup', world, async ({runId, stateDb, world: {onProgress}}) => {
    onProgress({step: 'copying'})
    const tape_key = findTapeKey(stateDb) ?? null
    // Made before the state database is copied, so that the copy contains it.
    const folder_id = requireFolderId(stateDb)
    const {no: units} = findHead(stateDb)
    const files: Manifest['files'] = []
    using made = beginFolder(dir)
    if (existsSync(folder.warehouse)) {
      // Applies a crashed run's write-ahead log to the file.
      await using db = await openWarehouse(folder, world, config)
      await db.run('checkpoint history')
    }
    // Copied before the tapes, from which a restore brings the copy up to date.
    await copyStateDb(folder, join(made.dir, STATE_DB))
    const paths = listKept(folder)
    for (const [done, path] of paths.entries()) {
      onProgress({step: 'copying', unit: 'files', done, total: paths.length})
      const [own, copy] = [join(folder.root, path), join(made.dir, path)]
      if (!isKept(path))
        throw newError('BACKUP_DIFFERS', `'${own}': no backup can hold it.`, {next: MOVE_AWAY})
      if (/^(queries|pages)\//.test(path) && !existsSync(own)) {
        world.log.warn({file: path}, 'not in the backup: it was removed since, or its name is not UTF-8')
        continue
      }
      const sha256 = path === STATE_DB ? await digestFile(copy) : await copyVerified(own, copy)
      files.push({path, bytes: statSync(copy).size, sha256})
    }
    const key = findReadKey(config, folder)
    const said = {format: FORMAT, generator: GENERATOR, made_at, tape_key, folder_id, files} as const
    const manifest: Manifest = {...said, mac: null}
    if (key && key.fingerprint === tape_key) manifest.mac = macOf(manifest, key)
    writeFileAtomically(join(made.dir, MANIFEST), `${JSON.stringify(manifest, null, 2)}\n`)
    made.finish()
    requireWholeTapes(stateDb, dir, files)
    const bytes = files.reduce((total, file) => total + file.bytes, 0)
    return {
      run_id: runId,
      outcome: 'backed_up' as const,
      dir,
      files: files.length,
      bytes,
      tape_key,
      /** The units of the record that it certainly holds; `prune` keeps the tapes of later ones. */
      units,
      /** Its manifest carries a MAC. */
      authenticated: manifest.mac !== null,
      removed: [] as string[],
    }
  })
}

/**
 * Each finished tape in a backup must still be the file that was finished; otherwise no older backup may be removed.
 * @throws UnexpectedError `TAPE_DAMAGED`
 */
function requireWholeTapes(stateDb: StateDb, dir: string, files: Manifest['files']): void {
  const finished = new Map(
    listTapes(stateDb).flatMap(({path, ended_at, sha256}) => (ended_at && sha256 ? [[path, sha256]] : [])),
  )
  const damaged = files.filter(({path, sha256}) => (finished.get(path) ?? sha256) !== sha256)
  if (damaged.length === 0) return
  const named = damaged.map(({path}) => path).join(', ')
  throw newError(
    'TAPE_DAMAGED',
    `Tapes in the backup '${dir}': ${named}: they are not the files that were finished.`,
    {
      kept: 'The backup was made with what they hold now; no older one was removed.',
      next: 'Bring these files back from an older backup, then run again.',
    },
  )
}

const DATED = /^loantape-\d{8}T\d{6}Z$/

const isoNow = ({realClock}: Pick<World, 'realClock'>) => new Date(realClock.now()).toISOString()

/** `made_at` is an instant in ISO 8601. */
export const nameOf = ({made_at}: Pick<Manifest, 'made_at'>) =>
  `loantape-${made_at.replace(/[-:]|\.\d+/g, '')}`

/** The folder of this data folder's dated backups; several lenders may share `to`. @throws ConfigError `FLEET_DATA_SHARED` */
function placeOf(config: Config, to: string): string {
  requireOwnPlace(config, to)
  const folder = requireWritable(dataFolderAt(config.dataDir))
  using stateDb = openStateDb(folder.stateDb)
  return join(to, requireFolderId(stateDb))
}

/** Oldest first, except those that this clock puts in the future. */
function listDated(dir: string, world: Pick<World, 'realClock'>): string[] {
  const last = nameOf({made_at: isoNow(world)})
  return listNames(dir).filter(
    (name) => DATED.test(name) && name <= last && existsSync(join(dir, name, MANIFEST)),
  )
}

/**
 * Makes a backup below a folder, named after data folder and time, sends it, and removes the oldest beyond `kept`. If it could
 * not be sent, the next backup replaces it, so that repeated attempts do not push out older nights.
 * @throws UnexpectedError `BACKUP_AHEAD` (the backup is made even so); what {@link backUp} throws
 */
export async function backUpDated<Delivery = never>(
  config: Config,
  {to, kept}: {to: string; kept: number},
  world: World,
  send: (made: BackupResult) => Promise<Delivery[]> = async () => [],
) {
  const place = placeOf(config, to)
  let made_at = isoNow(world)
  const isTaken = () => existsSync(join(place, nameOf({made_at})))
  while (isTaken()) made_at = new Date(Date.parse(made_at) + 1000).toISOString()
  const result = await backUp(config, join(place, nameOf({made_at})), world, made_at)
  const unsent = join(place, '.unsent')
  const [superseded] = existsSync(unsent) ? [readFileSync(unsent, 'utf8')] : []
  if (superseded && DATED.test(superseded)) rmSync(join(place, superseded), {recursive: true, force: true})
  writeFileAtomically(unsent, basename(result.dir))
  const deliveries = await send(result)
  rmSync(unsent, {force: true})
  const dated = listDated(place, world)
  requireOwnActs(config, place, dated)
  const removed = dated.slice(0, -kept)
  for (const name of removed) rmSync(join(place, name), {recursive: true, force: true})
  return {...result, removed, deliveries}
}

/**
 * Dated backups must hold no act that this data folder lacks: books of that time would be issued once more.
 * @throws UnexpectedError `BACKUP_AHEAD`
 */
function requireOwnActs(config: Config, place: string, dated: readonly string[]): void {
  using stateDb = openStateDb(dataFolderAt(config.dataDir).stateDb)
  const known = new Set(listTapes(stateDb).map(({name}) => name))
  const hasForeignAct = (name: string) => {
    const manifest = tolerate(['BACKUP_UNREADABLE'], () => readManifest(join(place, name)))
    const tapes = manifest?.files.map(({path}) => basename(path, '.jsonl.zst'))
    return tapes?.some((tape) => isOfActs(tape) && !known.has(tape))
  }
  const ahead = dated.filter(hasForeignAct)
  if (ahead.length === 0) return
  const problem = `Backups in '${place}': ${ahead.join(', ')}: of this data folder, but with acts that it lacks. It was put back from an older copy, or another copy of it goes on.`
  throw newError('BACKUP_AHEAD', problem)
}

const STATE_DB = 'state.sqlite'

const KEPT_FOLDERS = ['exports', 'tape', 'queries', 'pages']
const KEPT_FILES = ['warehouse.duckdb', 'hash.key', 'fields.json', 'accounting.json', STATE_DB]
const KEPT_NAMES = [...KEPT_FOLDERS, ...KEPT_FILES]
/** The engines would apply them to a database that is put beside them. */
const LOGS = ['warehouse.duckdb.wal', `${STATE_DB}-wal`, `${STATE_DB}-shm`]

/** Other paths could overwrite settings or programs. */
function isKept(path: string): boolean {
  const [folder = '', ...below] = path.split('/')
  const isBelow = below.length > 0 && !below.some((name) => ['', '.', '..'].includes(name))
  return KEPT_FILES.includes(path) || (KEPT_FOLDERS.includes(folder) && isBelow)
}

/** Files as paths below the data folder. */
function listKept({root}: DataFolder): string[] {
  return KEPT_NAMES.map((name) => join(root, name))
    .filter((path) => existsSync(path))
    .flatMap((path) => (statSync(path).isDirectory() ? listFilesBelow(path) : [path]))
    .map((path) => relative(root, path))
}

const MOVE_AWAY = 'Move it elsewhere, then run again.'

/** Repeats the copy if somebody saved the file meanwhile. Returns the sha256 of both. */
async function copyVerified(from: string, to: string, copies = 3): Promise<string> {
  // Reading a pipe might never end.
  if (!statSync(from, {throwIfNoEntry: false})?.isFile())
    throw newError('BACKUP_DIFFERS', `'${from}': expected a file to copy.`, {next: MOVE_AWAY})
  createFolder(dirname(to))
  rmSync(to, {force: true})
  copyFileSync(from, to, constants.COPYFILE_FICLONE)
  // The copy has the mode of its original, which a download made readable by everybody.
  if (statSync(to).mode & 0o077) shareWithFolder(to, true)
  syncToDisk(to)
  const sha256 = await digestFile(to)
  if ((await digestFile(from)) === sha256) return sha256
  if (copies > 1) return copyVerified(from, to, copies - 1)
  throw newError('BACKUP_DIFFERS', `Copy '${to}' differs from '${from}'.`)
}

async function copyStateDb(folder: DataFolder, copy: string): Promise<void> {
  {
    using stateDb = new DatabaseSync(folder.stateDb)
    await copyDatabase(stateDb, copy)
  }
  using copied = new DatabaseSync(copy)
  // Without this, the copy would need a write-ahead log beside it.
  copied.exec('pragma journal_mode = delete')
  // How this run, and the job that it belongs to, end is recorded only in the original.
  copied.exec(`
    delete from lock;
    delete from run where ended_at is null;
    delete from job_run where state = 'running'`)
  const {integrity_check: found} = copied.prepare('pragma integrity_check').get() ?? {}
  if (found !== 'ok')
    throw newError(
      'BACKUP_DIFFERS',
      `Copy '${copy}' of the state database is damaged: ${String(found).split('\n').at(-1)}.`,
      {
        next: 'Run `loantape verify`: if state.sqlite is damaged too, it says how to get that back. If not, check the disk.',
      },
    )
}

/**
 * If the tape key is at hand, also compares the manifest with its MAC; `isTrusted` accepts a manifest even if its MAC is not of
 * that key.
 * @throws ConfigError `BACKUP_UNREADABLE`; UnexpectedError `BACKUP_DAMAGED`, `BACKUP_NOT_AUTHENTIC`
 */
export async function examineBackup(config: Config, from: string, isTrusted = false) {
  const dir = resolve(from)
  const manifest = readManifest(dir)
  const {files, tape_key, mac} = manifest
  const key = findReadKey(config, dataFolderAt(config.dataDir))
  const authenticated = key !== undefined && mac === macOf(manifest, key)
  if (key && !authenticated && !isTrusted)
    throw newError(
      'BACKUP_NOT_AUTHENTIC',
      `Manifest of the backup '${dir}' names key ${tape_key ?? 'none'} and has no MAC of key ${key.fingerprint}, the one at hand: it was changed, made by somebody else, or made under another key.`,
    )
  for (const {path, ...written} of files) {
    // A signal is heard between two files.
    await nextTurn()
    const file = join(dir, path)
    if (!isKept(path) || !isInside(file, dir) || findFileFault(file, written)) throw createDamaged(dir, path)
  }
  return {
    outcome: 'whole' as const,
    from: dir,
    files: files.length,
    tape_key,
    /** Its manifest has the MAC of the key at hand. */
    authenticated,
    listed: files,
  }
}

export const sayAuthentic = ({authenticated, tape_key}: {authenticated: boolean; tape_key: string | null}) =>
  authenticated
    ? `Its manifest has the MAC of the key of tapes, ${tape_key}.`
    : 'It may have been changed: no MAC of the tape key was compared. Anybody who can write there could have made it.'

/**
 * Restores into a data folder that has none of the files a backup holds: copies it all into a folder inside, then moves each
 * file to its place. While that inner folder exists, no command opens the data folder except another restore, once this one has
 * ended.
 * @throws LockedError `RUN_IN_PROGRESS`; ConfigError `RESTORE_NOT_EMPTY`, `BACKUP_UNREADABLE`; UnexpectedError `BACKUP_DAMAGED`,
 *   `BACKUP_NOT_AUTHENTIC`
 */
export async function restoreBackup(config: Config, from: string, isTrusted = false) {
  const folder = dataFolderAt(config.dataDir)
  // A missing one is made only for a backup that can be restored.
  if (existsSync(folder.root)) requireWritable(folder)
  const staging = join(folder.root, RESTORING)
  const requireEmpty = () => {
    const logs = LOGS.filter((name) => existsSync(join(folder.root, name)))
    const [there] = existsSync(staging) ? [] : [...listKept(folder), ...logs]
    if (there === undefined) return
    const problem = `'${there}' in data folder '${folder.root}': expected an empty one for a backup.`
    throw newError('RESTORE_NOT_EMPTY', problem)
  }
  requireEmpty()
  if (!isTrusted && !findReadKey(config, folder))
    throw newError(
      'BACKUP_NOT_AUTHENTIC',
      `Backup '${from}': without the key of tapes, '${keyFileOf(config, folder)}', nobody can tell whether it was changed.`,
    )
  const {listed, ...examined} = await examineBackup(config, from, isTrusted)
  requireWritable(folder)
  using lock = await takeFileLock(folder.warehouseLock, 'write', 0)
  if (!lock)
    throw newError('RUN_IN_PROGRESS', `Another restore, or a run, uses data folder '${folder.root}'.`)
  requireEmpty()
  // What a killed restore left; its inner folder last, since without it commands open the data folder.
  for (const name of [...KEPT_NAMES, RESTORING])
    rmSync(join(folder.root, name), {recursive: true, force: true})
  for (const {path, sha256} of listed) {
    // The file may have been changed since it was checked.
    const copied = await copyVerified(join(examined.from, path), join(staging, path))
    if (copied !== sha256) throw createDamaged(examined.from, path)
  }
  for (const name of KEPT_NAMES)
    if (existsSync(join(staging, name))) renameSync(join(staging, name), join(folder.root, name))
  syncToDisk(folder.root)
  rmSync(staging, {recursive: true})
  return {...examined, outcome: 'restored' as const, last_batches: listLastBatches(folder)}
}

/** The last journal batch of each profile: `xero/2026-02-5d136da876e4`. */
function listLastBatches({stateDb: path}: DataFolder): string[] {
  // Opened read-only, so that the restored files stay unchanged.
  using stateDb = new DatabaseSync(path, {readOnly: true})
  const sql = `select profile || '/' || batch_id as batch, max(batch_no) from journal_batch group by profile`
  return stateDb
    .prepare(sql)
    .all()
    .map(({batch}) => String(batch))
}

const LONGEST_MANIFEST = 256 * 1024 * 1024

/** @throws ConfigError `BACKUP_UNREADABLE`; UnexpectedError `DATA_NEWER` */
export function readManifest(dir: string): Manifest {
  let format: string
  try {
    const stat = statSync(join(dir, MANIFEST))
    if (!stat.isFile() || stat.size > LONGEST_MANIFEST) throw new Error('not the manifest of a backup')
    const manifest = JSON.parse(readFileSync(join(dir, MANIFEST), 'utf8'))
    ;({format} = formatSchema.parse(manifest))
    if (format === FORMAT) return manifestSchema.parse(manifest)
  } catch (cause) {
    throw newError(
      'BACKUP_UNREADABLE',
      `Folder '${dir}' is not a backup of loantape: its ${MANIFEST} cannot be read (${messageOf(cause).split('\n')[0]}).`,
      {cause},
    )
  }
  throw newError('DATA_NEWER', `Backup '${dir}' is a '${format}': this version knows '${FORMAT}'.`)
}

/** Over the fields in schema order, with a key derived for that purpose. */
function macOf({mac: _, ...fields}: Manifest, key: TapeKey): string {
  const derived = hkdfSync('sha256', key.bytes, '', 'loantape backup manifest', 32)
  return createHmac('sha256', Buffer.from(derived)).update(JSON.stringify(fields)).digest('hex')
}

const createDamaged = (dir: string, path: string) =>
  newError(
    'BACKUP_DAMAGED',
    `File '${shorten(path)}' of the backup '${dir}' is not the one that was written.`,
  )

/**
 * Restores the data folder's latest dated backup beside it, examines everything it brought back, builds its release and compares
 * that with the one that was built at the time. What was restored is removed again. `compared` is `not kept` where that release
 * is no longer there.
 * @throws ConfigError `BACKUP_NONE`; LockedError `RUN_IN_PROGRESS`; UnexpectedError `DRILL_FAILED`; what restoring and building
 *   throw
 */
export async function rehearseRestore(config: Config, {from}: {from: string}, world: World) {
  const place = placeOf(config, from)
  const folder = dataFolderAt(config.dataDir)
  const latest = listDated(place, world).at(-1)
  if (latest === undefined)
    throw newError(
      'BACKUP_NONE',
      `Folder '${place}': expected a job's backup of this data folder, found none.`,
    )
  const backup = join(place, latest)
  using stateDb = openStateDb(folder.stateDb)
  using _lock = acquireLock(stateDb, {runId: randomUUID(), command: 'drill', name: 'restore drill'}, world)
  const drill = dataFolderAt(join(folder.cache, 'drill'))
  const restored = {...config, dataDir: drill.root, tapeKeyFile: keyFileOf(config, folder)}
  const remove = () => rmSync(drill.root, {recursive: true, force: true})
  const createFailed = (problem: string) =>
    newError('DRILL_FAILED', `Backup '${backup}' does not bring everything back: ${problem}.`)
  remove()
  using cleaning = new DisposableStack()
  cleaning.defer(remove)
  world.onProgress({step: 'restore'})
  const {files, authenticated} = await restoreBackup(restored, backup)
  const {problems, walks, batch_files} = await verifyAll(restored, world)
  const [fault] = problems
  if (fault) {
    const words = `${fault.path}: ${fault.problem.replace(/\.$/, '')}`
    throw createFailed(`${quantity(problems.length, 'problem')}, such as ${words}`)
  }
  const built = hasWarehouse(drill) ? (await requireBuilt(restored, {}, world)).manifest : undefined
  const kept = built && unlessDamaged(() => readRelease(join(folder.releases, built.release_id)))?.manifest
  const digestsOf = (manifest?: ReleaseManifest) => manifest?.tables.map(({file, sha256}) => [file, sha256])
  if (kept && !isDeepStrictEqual(digestsOf(kept), digestsOf(built)))
    throw createFailed(`release ${kept.release_id}, built from it, differs from the one that is kept`)
  return {
    ...{outcome: 'restored' as const, backup, files, authenticated, walks, batch_files},
    release_id: built?.release_id ?? null,
    compared: kept ? ('equal' as const) : ('not kept' as const),
  }
}
