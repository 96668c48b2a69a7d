import {chmodSync, fdatasyncSync, mkdirSync, rmSync, writeFileSync, writeSync} from 'node:fs'
import {type FileHandle, open} from 'node:fs/promises'
import {dirname} from 'node:path'
import {digestFile, digestFileNow, moveIntoPlace, syncToDisk} from '../warehouse/atomic-file.ts'
import type {TapeKey} from './key.ts'
import {CHAIN_START, type Frame, formatLine} from './line.ts'
import type {TapeEnd} from './read-tape.ts'
import {createTapeId, formatHeader, HEADER_BYTES, sealGroup, sealGroupNow} from './sealed-group.ts'

/** A tape that is being written; disposing it closes the file and drops what was not stored. */
export interface TapeWriter extends AsyncDisposable {
  /** Of the last line that was added. */
  readonly chain: string
  /** Adds a line; it is on the tape once it has been stored. */
  add(frame: Frame, body?: Buffer): void
  /** Writes the lines added so far to the disk as one group; more may be added meanwhile. Once it has failed it fails always. */
  store(): Promise<void>
  /** The same at once, where nobody may come in between; nothing else is being stored. */
  storeNow(): void
  /** Stores the rest and makes the file one that nobody writes any more. */
  finish(): Promise<{sha256: string; bytes: number}>
}

/** Begins a tape of a data folder. */
export async function createTape(path: string, key: TapeKey, folderId: string): Promise<TapeWriter> {
  mkdirSync(dirname(path), {recursive: true, mode: 0o700})
  const file = await open(path, 'w', 0o600)
  const tapeId = createTapeId(folderId)
  await file.write(formatHeader(key, tapeId), 0)
  await file.datasync()
  syncToDisk(dirname(path))
  return createWriter(path, key, {file, tapeId, groups: 0, bytes: HEADER_BYTES, chain: CHAIN_START})
}

/** A tape of one group, as it was written. */
export interface WholeTape {
  /** Of its last line. */
  chain: string
  bytes: number
  sha256: string
}

/** Writes a whole tape of one group at once: it is there with all of its lines, or not at all. */
export function writeWholeTape(
  path: string,
  lines: readonly {frame: Frame; body?: Buffer}[],
  key: TapeKey,
  folderId: string,
): WholeTape {
  const tapeId = createTapeId(folderId)
  let chain = CHAIN_START
  const texts = lines.map(({frame, body}) => {
    const line = formatLine(frame, body, chain)
    ;({chain} = line)
    return `${line.text}\n`
  })
  const content = Buffer.concat([
    Buffer.from(formatHeader(key, tapeId)),
    sealGroupNow(texts.join(''), {tapeId, number: 0}, key),
  ])
  mkdirSync(dirname(path), {recursive: true, mode: 0o700})
  const temporary = `${path}.tmp`
  // Left by a process that died here.
  rmSync(temporary, {force: true})
  writeFileSync(temporary, content, {mode: 0o400})
  moveIntoPlace(temporary, path)
  return {chain, bytes: content.length, sha256: digestFileNow(path)}
}

/** Goes on with a tape after its last whole group; what was torn behind it is cut off. */
export async function resumeTape(path: string, key: TapeKey, end: TapeEnd): Promise<TapeWriter> {
  const file = await open(path, 'r+')
  await file.truncate(end.bytes)
  await file.datasync()
  return createWriter(path, key, {file, ...end})
}

interface Place {
  file: FileHandle
  tapeId: string
  groups: number
  bytes: number
  chain: string
}

function createWriter(path: string, key: TapeKey, {file, ...start}: Place): TapeWriter {
  let {groups, bytes, chain} = start
  let added: string[] = []
  let failure: unknown
  const writer: TapeWriter = {
    get chain() {
      return chain
    },
    add(frame, body) {
      const line = formatLine(frame, body, chain)
      ;({chain} = line)
      added.push(`${line.text}\n`)
    },
    async store() {
      // What failed may be torn: only who reads it anew knows where it ends.
      if (failure !== undefined) throw failure
      if (added.length === 0) return
      const text = added.join('')
      added = []
      try {
        const sealed = await sealGroup(text, {tapeId: start.tapeId, number: groups}, key)
        await file.write(sealed, 0, sealed.length, bytes)
        await file.datasync()
        groups += 1
        bytes += sealed.length
      } catch (error) {
        failure = error
        throw error
      }
    },
    storeNow() {
      if (failure !== undefined) throw failure
      try {
        const sealed = sealGroupNow(added.join(''), {tapeId: start.tapeId, number: groups}, key)
        added = []
        writeSync(file.fd, sealed, 0, sealed.length, bytes)
        fdatasyncSync(file.fd)
        groups += 1
        bytes += sealed.length
      } catch (error) {
        failure = error
        throw error
      }
    },
    async finish() {
      await writer.store()
      await file.sync()
      chmodSync(path, 0o400)
      return {sha256: await digestFile(path), bytes}
    },
    [Symbol.asyncDispose]: () => file.close(),
  }
  return writer
}
