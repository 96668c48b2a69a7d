import {createHash} from 'node:crypto'
import {closeSync, createReadStream, fsyncSync, openSync, readSync, renameSync, writeFileSync} from 'node:fs'
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

/** The sha256 of a file, as hex, where there is no time to let anybody in between. */
export function digestFileNow(path: string): string {
  const digest = createHash('sha256')
  const chunk = Buffer.alloc(1 << 20)
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
  const digest = createHash('sha256')
  for await (const chunk of createReadStream(path, {highWaterMark: 1 << 20})) digest.update(chunk)
  return digest.digest('hex')
}
