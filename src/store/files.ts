import {createHash, hash} from 'node:crypto'
import {
  chmodSync,
  closeSync,
  createReadStream,
  existsSync,
  fsyncSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import {dirname} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {setTimeout as delay} from 'node:timers/promises'
import {codeOf} from '../core/errors.ts'

/**
 * What the process creates is its user's alone (`main.ts`). This lets whoever may read a folder read a new file or folder
 * in it: for what is put elsewhere than into the data folder.
 */
export function shareWithFolder(path: string): void {
  const readers = statSync(dirname(path)).mode & 0o055
  const mode = statSync(path).isDirectory() ? 0o700 | readers : 0o600 | (readers & 0o044)
  try {
    chmodSync(path, mode)
  } catch (error) {
    // Shares of other systems have rights of their own.
    if (!['EPERM', 'ENOTSUP', 'EINVAL'].includes(codeOf(error))) throw error
  }
}

/** How often whoever waits looks again. */
const LOOK_MS = 5

/**
 * Takes a lock that many readers hold together, or one writer alone; who dies gives back what it held. Everybody comes in by a
 * gate, which a writer keeps shut while it waits: so no reader comes before it that is not in yet.
 *
 * @param path an empty file, made where it is missing, as `<path>.gate` is: SQLite's locks on them are the lock
 * @returns undefined when others still held it after `waitMs`
 */
export async function takeFileLock(
  path: string,
  mode: 'read' | 'write',
  waitMs: number,
): Promise<Disposable | undefined> {
  const until = performance.now() + waitMs
  using gate = await take(`${path}.gate`, 'begin exclusive', until)
  const begin = mode === 'write' ? 'begin exclusive' : 'begin; select count(*) from sqlite_schema'
  return gate && (await take(path, begin, until))
}

async function take(path: string, begin: string, until: number): Promise<Disposable | undefined> {
  const db = new DatabaseSync(path, {timeout: 0})
  for (;;) {
    try {
      db.exec(begin)
      return db
    } catch (error) {
      const isBusy = error instanceof Error && 'errcode' in error && error.errcode === SQLITE_BUSY
      if (isBusy && performance.now() < until) {
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

/** Forces a file's or folder's content to the disk. */
export function syncToDisk(path: string): void {
  const handle = openSync(path, 'r')
  try {
    fsyncSync(handle)
  } finally {
    closeSync(handle)
  }
}

/** Gives a finished file or folder its final name, durably; nobody ever sees it half-written under that name. */
export function moveIntoPlace(temporary: string, final: string): void {
  syncToDisk(temporary)
  renameSync(temporary, final)
  syncToDisk(dirname(final))
}

/** Writes a whole file under a temporary name, then renames it; whoever may read its folder may read it. */
export function writeFileAtomically(path: string, content: string): void {
  const temporary = `${path}.tmp-${process.pid}`
  writeFileSync(temporary, content)
  shareWithFolder(temporary)
  moveIntoPlace(temporary, path)
}

/** Writes a text that can be made again, behind its sha256. */
export function keepText(path: string, text: string): void {
  writeFileAtomically(path, `${hash('sha256', text)}\n${text}`)
}

/** What {@link keepText} wrote; undefined where it did not, or where the disk has changed it since: that file is removed. */
export function readKept(path: string): string | undefined {
  if (!existsSync(path)) return undefined
  const kept = readFileSync(path, 'utf8')
  const text = kept.slice(kept.indexOf('\n') + 1)
  if (kept === `${hash('sha256', text)}\n${text}`) return text
  rmSync(path, {force: true})
  return undefined
}

/** Bytes of a file that are held at once. */
const CHUNK_BYTES = 1 << 20

/** The sha256 of a file, as hex, where there is no time to let anybody in between. */
export function digestFileNow(path: string): string {
  const digest = createHash('sha256')
  const chunk = Buffer.allocUnsafe(Math.min(statSync(path).size + 1, CHUNK_BYTES))
  const file = openSync(path, 'r')
  try {
    for (let bytes = readSync(file, chunk); bytes > 0; bytes = readSync(file, chunk)) {
      digest.update(chunk.subarray(0, bytes))
    }
  } finally {
    closeSync(file)
  }
  return digest.digest('hex')
}

/** The sha256 of a file, as hex. */
export async function digestFile(path: string): Promise<string> {
  // A stream has a whole chunk for each small file, twice: a build had 70 MB of them collected.
  if (statSync(path).size < CHUNK_BYTES) return digestFileNow(path)
  const digest = createHash('sha256')
  for await (const chunk of createReadStream(path, {highWaterMark: CHUNK_BYTES})) digest.update(chunk)
  return digest.digest('hex')
}
