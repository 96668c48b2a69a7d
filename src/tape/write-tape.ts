import {chmodSync, mkdirSync} from 'node:fs'
import {type FileHandle, open} from 'node:fs/promises'
import {dirname} from 'node:path'
import {digestFile, syncToDisk} from '../warehouse/atomic-file.ts'
import type {TapeKey} from './key.ts'
import {CHAIN_START, type Frame, formatLine} from './line.ts'
import type {TapeEnd} from './read-tape.ts'
import {createTapeId, formatHeader, HEADER_BYTES, sealGroup} from './sealed-group.ts'

/** A tape that is being written; disposing it closes the file and drops what was not stored. */
export interface TapeWriter extends AsyncDisposable {
  /** Of the last line that was added. */
  readonly chain: string
  /** Adds a line; it is on the tape once it has been stored. */
  add(frame: Frame, body?: Buffer): void
  /** Writes the lines added so far to the disk as one group; more may be added meanwhile. Once it has failed it fails always. */
  store(): Promise<void>
  /** Stores the rest and makes the file one that nobody writes any more. */
  finish(): Promise<{sha256: string; bytes: number}>
}

/** Begins a tape. */
export async function createTape(path: string, key: TapeKey): Promise<TapeWriter> {
  mkdirSync(dirname(path), {recursive: true, mode: 0o700})
  const file = await open(path, 'w', 0o600)
  const tapeId = createTapeId()
  await file.write(formatHeader(key, tapeId), 0)
  await file.datasync()
  syncToDisk(dirname(path))
  return createWriter(path, key, {file, tapeId, groups: 0, bytes: HEADER_BYTES, chain: CHAIN_START})
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
