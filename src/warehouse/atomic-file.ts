import {createHash} from 'node:crypto'
import {
  closeSync,
  createReadStream,
  fsyncSync,
  openSync,
  readSync,
  renameSync,
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
