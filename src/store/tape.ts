import {
  chmodSync,
  closeSync,
  fdatasyncSync,
  fstatSync,
  mkdirSync,
  openSync,
  readSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import {type FileHandle, open} from 'node:fs/promises'
import {basename, dirname, join} from 'node:path'
import {newError} from '../core/errors.ts'
import {removeAbandoned, WRITER_MARK, WRITING} from '../core/process.ts'
import {digestFile, digestFileNow, moveIntoPlace, syncToDisk} from './files.ts'
import {
  CHAIN_START,
  createTapeId,
  type Frame,
  folderOf,
  formatHeader,
  formatLine,
  HEADER_BYTES,
  LENGTH_BYTES,
  openGroup,
  parseGroupLength,
  parseHeader,
  parseLine,
  readChain,
  readLineAlone,
  sealGroup,
  sealGroupNow,
  type TapeKey,
  type TapeLine,
} from './tape-format.ts'

/** A tape that is being written; disposing it closes the file and drops what was not stored. */
export interface TapeWriter extends AsyncDisposable {
  /** The chain of the last added line. */
  readonly chain: string
  /** Adds a line; it is on the tape once it has been stored. */
  add(frame: Frame, body?: Buffer): void
  /** Writes the added lines to the disk as one group; more may be added meanwhile. After a failure it always fails. */
  store(): Promise<void>
  /** The same, synchronously; requires that nothing else is being stored. */
  storeNow(): void
  /** Stores the rest and makes the file read-only. */
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

/** A written tape of one group. */
interface WholeTape {
  /** The chain of its last line. */
  chain: string
  bytes: number
  sha256: string
}

/** Writes a tape of one group atomically, first under another name in the folder of all tapes. */
export function writeWholeTape(
  {tapes, path}: {tapes: string; path: string},
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
  removeAbandoned(tapes, WRITING)
  const temporary = join(tapes, `${WRITING}${basename(path)}${WRITER_MARK}`)
  writeFileSync(temporary, content, {mode: 0o400})
  moveIntoPlace(temporary, path)
  return {chain, bytes: content.length, sha256: digestFileNow(path)}
}

/** Continues a tape after its last whole group; cuts off a torn rest. */
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
      // A failed write may be torn: the tape must be read again to find its end.
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

/** How far a tape could be read. */
export interface TapeEnd {
  /** The id of the tape; empty if its header is unreadable. */
  tapeId: string
  groups: number
  lines: number
  /** Where its last whole group ends. */
  bytes: number
  /** The chain of its last whole line. */
  chain: string
  /** What is wrong after that; null if nothing is. */
  problem: string | null
}

/** A line with its number on its tape, from 1. */
export type NumberedLine = TapeLine & {number: number}

/**
 * Reads a tape group by group, so its length costs no memory.
 *
 * @param isWanted judges a line by its text; unwanted lines are skipped, and neither their chain nor their body is verified
 * @returns its lines, and how far it has been read so far
 * @throws UnexpectedError `TAPE_KEY_WRONG` when it is sealed with another key
 */
export function openTape(
  path: string,
  key: TapeKey,
  isWanted: (text: string) => boolean = () => true,
): {lines: Generator<NumberedLine>; end: TapeEnd} {
  const end: TapeEnd = {tapeId: '', groups: 0, lines: 0, bytes: 0, chain: CHAIN_START, problem: null}
  return {lines: readWanted(path, key, {isWanted, end}), end}
}

function* readWanted(
  path: string,
  key: TapeKey,
  {isWanted, end}: {isWanted: (text: string) => boolean; end: TapeEnd},
): Generator<NumberedLine> {
  const stop = (problem: string) => {
    end.problem = problem
  }
  const file = openSync(path, 'r')
  try {
    const stats = fstatSync(file)
    const {size} = stats
    const read = (from: number, length: number) => {
      const bytes = Buffer.alloc(Math.min(length, size - from))
      readSync(file, bytes, 0, bytes.length, from)
      return bytes
    }
    if (!stats.isFile()) return stop('it is not a file')
    const header = parseHeader(read(0, HEADER_BYTES))
    if (header === null) return stop('it does not begin like a tape')
    const {fingerprint, tapeId} = header
    if (fingerprint !== key.fingerprint)
      throw newError(
        'TAPE_KEY_WRONG',
        `Tape '${path}' is sealed with key ${fingerprint}: the key at hand is ${key.fingerprint}.`,
      )
    end.tapeId = tapeId
    end.bytes = HEADER_BYTES
    while (end.bytes < size) {
      const from = end.bytes + LENGTH_BYTES
      const length = from <= size ? parseGroupLength(read(end.bytes, LENGTH_BYTES)) : null
      if (length === null || from + length > size) return stop('it is cut off')
      const text = openGroup(read(from, length), {tapeId, number: end.groups}, key)
      if (text === null) return stop('its bytes are not those that were written')
      const lines: NumberedLine[] = []
      let {chain, lines: number} = end
      for (const line of text.split('\n').slice(0, -1)) {
        number += 1
        if (!isWanted(line)) {
          chain = readChain(line) ?? ''
          continue
        }
        const parsed = parseLine(line, chain)
        if ('problem' in parsed) return stop(parsed.problem)
        ;({chain} = parsed)
        lines.push({...parsed, number})
      }
      Object.assign(end, {bytes: from + length, chain, groups: end.groups + 1, lines: number})
      yield* lines
    }
  } finally {
    closeSync(file)
  }
}

/** Reads the header of a tape; undefined if the file is not a tape. */
export function readTapeHeader(path: string): {fingerprint: string; folderId: string} | undefined {
  const file = openSync(path, 'r')
  try {
    const head = Buffer.alloc(HEADER_BYTES)
    readSync(file, head, 0, HEADER_BYTES, 0)
    const header = parseHeader(head)
    return header ? {fingerprint: header.fingerprint, folderId: folderOf(header.tapeId)} : undefined
  } finally {
    closeSync(file)
  }
}

/**
 * The lines of a tape's first group and of its last whole one, and where the latter ends. The groups between are skipped by their
 * lengths. Chains are not verified.
 */
export function readEnds(path: string, key: TapeKey): {first: TapeLine[]; last: TapeLine[]; bytes: number} {
  const file = openSync(path, 'r')
  try {
    const {size} = fstatSync(file)
    const read = (from: number, length: number) => {
      const bytes = Buffer.alloc(length)
      readSync(file, bytes, 0, length, from)
      return bytes
    }
    const header = size < HEADER_BYTES ? null : parseHeader(read(0, HEADER_BYTES))
    const groups: {from: number; length: number}[] = []
    let bytes = HEADER_BYTES
    while (header && bytes + LENGTH_BYTES <= size) {
      const length = parseGroupLength(read(bytes, LENGTH_BYTES))
      const from = bytes + LENGTH_BYTES
      if (length === null || from + length > size) break
      groups.push({from, length})
      bytes = from + length
    }
    const linesOf = (number: number): TapeLine[] => {
      const group = groups.at(number)
      if (!header || !group || header.fingerprint !== key.fingerprint) return []
      const place = {tapeId: header.tapeId, number: (number + groups.length) % groups.length}
      const text = openGroup(read(group.from, group.length), place, key) ?? ''
      return text
        .split('\n')
        .slice(0, -1)
        .flatMap((line) => readLineAlone(line) ?? [])
    }
    return {first: linesOf(0), last: linesOf(-1), bytes}
  } finally {
    closeSync(file)
  }
}

/**
 * Reads every line of a whole tape, or only the wanted ones.
 *
 * @throws UnexpectedError `TAPE_DAMAGED`, `TAPE_KEY_WRONG`
 */
export function* readLines(
  path: string,
  key: TapeKey,
  isWanted?: (text: string) => boolean,
): Generator<NumberedLine> {
  const {lines, end} = openTape(path, key, isWanted)
  yield* lines
  if (end.problem !== null)
    throw newError('TAPE_DAMAGED', `Tape '${path}' after line ${end.lines}: ${end.problem}.`)
}
