import {isUtf8} from 'node:buffer'
import {createHash, randomBytes} from 'node:crypto'
import {
  chmodSync,
  closeSync,
  createReadStream,
  createWriteStream,
  existsSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import {open} from 'node:fs/promises'
import {dirname, join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {pipeline} from 'node:stream/promises'
import {setTimeout as delay} from 'node:timers/promises'
import pLimit from 'p-limit'
import {codeOf, findMachineFault, messageOf, newError, tolerate} from '../core/errors.ts'
import type {Refuse} from '../core/json.ts'
import {removeAbandoned, temporaryBeside, WRITING} from '../core/process.ts'

/**
 * Gives a new file or folder the read rights of its parent folder. If private, only its owner can read it, as the umask of
 * `main.ts` has it.
 */
export function shareWithFolder(path: string, isPrivate = false): void {
  const readers = isPrivate ? 0 : statSync(dirname(path)).mode & 0o055
  const made = statSync(path)
  // A new folder has the setgid bit of its parent: what is made in it gets the group of those who may read it.
  const setgid = made.mode & 0o2000
  const mode = made.isDirectory() ? setgid | 0o700 | readers : 0o600 | (readers & 0o044)
  // Network shares may not allow it.
  tolerate(['EPERM', 'ENOTSUP', 'EINVAL'], () => chmodSync(path, mode))
}

const LOOK_MS = 5

/**
 * Takes a lock that many readers or one writer can hold: SQLite's locks on two empty files, `path` and `<path>.gate`. The lock
 * of a dead process is free. A waiting writer keeps the gate shut, so new readers queue behind it. Undefined if others still
 * hold the lock after `waitMs`, or once `signal` asks to stop.
 * @throws ConfigError `NOT_WRITABLE`
 */
export async function takeFileLock(
  path: string,
  mode: 'read' | 'write',
  waitMs: number,
  signal?: AbortSignal,
): Promise<Disposable | undefined> {
  const until = performance.now() + waitMs
  const begin = mode === 'write' ? 'begin exclusive' : 'begin; select count(*) from sqlite_schema'
  try {
    using gate = await take(`${path}.gate`, 'begin exclusive', until, signal)
    return gate && (await take(path, begin, until, signal))
  } catch (cause) {
    const problem = `Lock '${path}' or '${path}.gate' cannot be opened: ${messageOf(cause)}.`
    throw findMachineFault(cause) ?? newError('NOT_WRITABLE', problem, {cause})
  }
}

async function take(
  path: string,
  begin: string,
  until: number,
  signal?: AbortSignal,
): Promise<Disposable | undefined> {
  const db = new DatabaseSync(path, {timeout: 0})
  for (;;) {
    try {
      // No journal is written, so the lock works on a full disk too.
      db.exec(`pragma journal_mode = memory; ${begin}`)
      return db
    } catch (error) {
      const isBusy = error instanceof Error && 'errcode' in error && error.errcode === SQLITE_BUSY
      if (isBusy && performance.now() < until && !signal?.aborted) {
        if (db.isTransaction) db.exec('rollback')
        await delay(LOOK_MS)
        continue
      }
      db.close()
      if (isBusy) return undefined
      throw error
    }
  }
}

const SQLITE_BUSY = 5

/** Longest file of those that people write. */
const LONGEST_WRITTEN_BYTES = 64 * 1024 * 1024

/** Reads a file that people write. Refuses a pipe, since reading it might never end. Messages show the `code` of its errors. */
export function readWritten(path: string): Buffer {
  const stat = statSync(path)
  if (!stat.isFIFO() && stat.size <= LONGEST_WRITTEN_BYTES) return readFileSync(path)
  const code = stat.isFIFO() ? 'a pipe' : 'longer than 64 MiB'
  throw Object.assign(new Error(`${code}: '${path}'`), {code})
}

/** Reads a file that people write with any editor: without a byte order mark, with LF line ends. */
export function readWrittenText(path: string, refuse: Refuse): string {
  let bytes: Buffer
  try {
    bytes = readWritten(path)
  } catch (cause) {
    throw refuse(`cannot be read (${codeOf(cause)})`, cause)
  }
  const text = bytes.toString()
  if (isUtf8(bytes)) return text.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n')
  throw refuse(
    `${findBadByte(bytes, text)}: expected UTF-8; editors and spreadsheets offer it when they save a file`,
  )
}

/** The first at which decoding changed the bytes, with line and column. */
function findBadByte(bytes: Buffer, text: string): string {
  const decoded = Buffer.from(text)
  let at = decoded.findIndex((byte, index) => byte !== bytes[index])
  // Goes back to the first byte of the replacement character.
  while (((decoded[at] ?? 0) & 0xc0) === 0x80) at -= 1
  const lines = bytes.toString('utf8', 0, at).split('\n')
  return `byte 0x${bytes[at]?.toString(16).toUpperCase()} at ${lines.length}:${(lines.at(-1)?.length ?? 0) + 1}`
}

/**
 * Does `mkdir -p`, for this user alone. Node's own says ENOENT where a disk has turned read-only, and never returns if the system
 * answers ENOENT, as /proc does.
 */
export function createFolder(path: string): void {
  if (existsSync(path)) return
  createFolder(dirname(path))
  tolerate(['EEXIST'], () => mkdirSync(path, {mode: 0o700}))
}

export function syncToDisk(path: string): void {
  const handle = openSync(path, 'r')
  try {
    fsyncSync(handle)
  } finally {
    closeSync(handle)
  }
}

/** Enough for the disk's journal to take many files in one write, and few enough for any limit of open files. */
const SYNCS_AT_ONCE = 16

/** In parallel: one by one takes five times as long. */
export async function syncBelow(dir: string): Promise<void> {
  const inTurn = pLimit(SYNCS_AT_ONCE)
  const syncs = readdirSync(dir, {recursive: true, encoding: 'utf8'}).map((name) =>
    inTurn(async () => {
      await using file = await open(join(dir, name))
      await file.sync()
    }),
  )
  // Waits for all before throwing the first failure: no file may be open when the folder is removed.
  await Promise.allSettled(syncs)
  await Promise.all(syncs)
}

/** Gives a finished file or folder its final name, durably. */
export function moveIntoPlace(temporary: string, final: string): void {
  syncToDisk(temporary)
  renameSync(temporary, final)
  syncToDisk(dirname(final))
}

/**
 * Copies a file for those who may read the folder of `final`. `copyFile` would give the copy the group of the original, and not
 * that of its folder.
 */
export async function copyIntoPlace(
  from: string,
  temporary: string,
  final: string,
  isPrivate = false,
): Promise<void> {
  // Others who may write there could have put a link in its place.
  rmSync(temporary, {force: true})
  try {
    await pipeline(createReadStream(from), createWriteStream(temporary, {flags: 'wx', mode: 0o600}))
    shareWithFolder(temporary, isPrivate)
    moveIntoPlace(temporary, final)
  } catch (error) {
    rmSync(temporary, {force: true})
    throw error
  }
}

export type BegunFolder = ReturnType<typeof beginFolder>

/** Disposing it removes what is unfinished. Also removes what dead writers left beside `final`. */
export function beginFolder(final: string) {
  const parent = dirname(final)
  removeAbandoned(parent, WRITING)
  const [dir, aside] = [temporaryBeside(final), temporaryBeside(`${final}-before`)]
  const remove = () => {
    for (const path of [dir, aside]) rmSync(path, {recursive: true, force: true})
  }
  createFolder(dir)
  /**
   * Gives the folder its final name, which may belong only to an empty folder. With `isWhole`, an incomplete folder of that name
   * is replaced, while a complete one stays: another process wrote it, and somebody may be reading it.
   */
  function finish(isWhole?: () => boolean): void {
    if (isWhole?.()) return
    try {
      rmSync(aside, {recursive: true, force: true})
      if (existsSync(final)) isWhole ? renameSync(final, aside) : rmdirSync(final)
      moveIntoPlace(dir, final)
    } catch (error) {
      // Another process may have given or taken that name meanwhile.
      const isElse = !['ENOENT', 'ENOTEMPTY', 'EEXIST'].includes(codeOf(error))
      if (isElse || !isWhole || !existsSync(dir)) throw error
      finish(isWhole)
    }
  }
  return {dir, final, finish, [Symbol.dispose]: remove}
}

/** Removes a folder unless another process has. It is renamed first, so that a half-removed folder counts as unfinished. */
export function removeFolder(path: string): void {
  const aside = temporaryBeside(`${path}-before`)
  tolerate(['ENOENT'], () => renameSync(path, aside))
  rmSync(aside, {recursive: true, force: true})
}

/** The file gets the read rights of its folder. */
export function writeFileAtomically(path: string, content: string): void {
  const temporary = temporaryBeside(path)
  writeFileSync(temporary, content)
  shareWithFolder(temporary)
  moveIntoPlace(temporary, path)
}

const NO_LINKS = ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']

/** Renames on file systems without hard links. */
export function linkOrMove(path: string, other: string): void {
  try {
    linkSync(path, other)
  } catch (error) {
    if (!NO_LINKS.includes(codeOf(error))) throw error
    renameSync(path, other)
  }
}

/**
 * A new file has its name once it is whole.
 * @throws an error with the code `EEXIST` if the name is taken
 */
export function writeNewFile(path: string, content: string, mode = 0o666): void {
  const temporary = temporaryBeside(path)
  try {
    writeFileSync(temporary, content, {mode})
    syncToDisk(temporary)
    // Without hard links it would be replaced.
    if (existsSync(path)) throw Object.assign(new Error('the name is taken'), {code: 'EEXIST'})
    linkOrMove(temporary, path)
  } finally {
    rmSync(temporary, {force: true})
  }
  syncToDisk(dirname(path))
}

/** Writes a new key of 32 bytes as hex digits, readable by its owner alone. @throws what {@link writeNewFile} throws */
export function writeNewKey(path: string): Buffer {
  const bytes = randomBytes(32)
  createFolder(dirname(path))
  writeNewFile(path, `${bytes.toString('hex')}\n`, 0o600)
  return bytes
}

/** Sorted, with links to files, without those being written; none if the folder does not exist. */
export function listFilesBelow(dir: string): string[] {
  if (!existsSync(dir)) return []
  return readdirSync(dir, {recursive: true, withFileTypes: true})
    .flatMap((entry) => {
      const path = join(entry.parentPath, entry.name)
      return entry.isFile() || (entry.isSymbolicLink() && isFile(path)) ? path : []
    })
    .filter((path) => !path.slice(dir.length).includes(`/${WRITING}`))
    .sort()
}

/** Changes whenever one of these files is written, replaced or removed. */
export function stampOf(...files: string[]): string {
  return files
    .map((file) => statSync(file, {bigint: true, throwIfNoEntry: false}))
    .map((stat) => (stat ? `${stat.size} ${stat.mtimeNs}` : 'none'))
    .join(', ')
}

const CHUNK_BYTES = 1 << 20

/** The sha256 as hex, synchronously. */
export function digestFileNow(path: string): string {
  const digest = createHash('sha256')
  const chunk = Buffer.allocUnsafe(Math.min(statSync(path).size + 1, CHUNK_BYTES))
  const file = openSync(path, 'r')
  try {
    for (let bytes = readSync(file, chunk); bytes > 0; bytes = readSync(file, chunk))
      digest.update(chunk.subarray(0, bytes))
  } finally {
    closeSync(file)
  }
  return digest.digest('hex')
}

export async function digestFile(path: string): Promise<string> {
  // For a small file, a stream would allocate two whole chunks: 70 MB of garbage in a build.
  if (statSync(path).size < CHUNK_BYTES) return digestFileNow(path)
  const digest = createHash('sha256')
  for await (const chunk of createReadStream(path, {highWaterMark: CHUNK_BYTES})) digest.update(chunk)
  return digest.digest('hex')
}

export const isFile = (path: string): boolean => statSync(path, {throwIfNoEntry: false})?.isFile() === true

/** Undefined if the file is as its manifest says. Nothing is read of a file of another size. */
export function findFileFault(
  path: string,
  {bytes, sha256}: {bytes: number; sha256: string},
): string | undefined {
  try {
    const found = statSync(path)
    if (!found.isFile()) return 'is not a file'
    return found.size === bytes && digestFileNow(path) === sha256
      ? undefined
      : 'does not have the sha256 of its manifest'
  } catch (error) {
    return ['ENOENT', 'ENOTDIR'].includes(codeOf(error))
      ? 'is not there'
      : `cannot be read (${codeOf(error)})`
  }
}
