import {createHash, hash} from 'node:crypto'
import {
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
import {shareWithFolder} from '../file-mode.ts'

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
