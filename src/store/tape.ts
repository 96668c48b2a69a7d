import {isUtf8} from 'node:buffer'
import {createCipheriv, createDecipheriv, hash, randomBytes} from 'node:crypto'
import {
  chmodSync,
  closeSync,
  fdatasyncSync,
  fstatSync,
  openSync,
  readSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import {basename, dirname, join} from 'node:path'
import {zstdCompressSync, zstdDecompressSync} from 'node:zlib'
import {z} from 'zod'
import {messageOf, newError} from '../core/errors.ts'
import {sliceJson} from '../core/json.ts'
import {removeAbandoned, temporaryBeside, WRITING} from '../core/process.ts'
import {createFolder, digestFileNow, moveIntoPlace, syncToDisk} from './files.ts'
import type {TapeKey} from './tape-key.ts'

const FRAME_KINDS = [
  'begin',
  'received',
  'list',
  'detail',
  'children',
  'look',
  'rates',
  'replay',
  'part',
  'act',
  'outcome',
] as const

/** A line without its body. */
export interface Frame {
  frame: (typeof FRAME_KINDS)[number]
  /** The path to the records in an answer whose translation is the next line. */
  at?: string[] | undefined
  [field: string]: unknown
}

export interface TapeLine {
  frame: Frame
  /** The sha256 of the body, even if the body was dropped. */
  sha256: string | undefined
  /** The bytes as received; undefined if there was no body or it was dropped. */
  body: Buffer | undefined
  /** The sha256 of the previous chain and this line without its body. */
  chain: string
  /** The line without its body, as text. */
  bare: string
}

export const textOf = ({body}: TapeLine) => new TextDecoder().decode(body)

/**
 * `record` is the text as the source sent it, undefined if that was not kept; `read` is its translation by `source.json`,
 * undefined without one.
 */
export function sliceRecord({original, ...line}: NumberedLine, path: readonly (string | number)[]) {
  const read = sliceJson(textOf(line), path)
  if (!original) return {record: read, read: undefined}
  const {at} = original.frame
  return {record: at && sliceJson(textOf(original), [...at, ...path.slice(1)]), read}
}

const CHAIN_START = '0'.repeat(64)

/** Begins the chain, and ends the text that it covers, in which a field of this name is escaped. */
const MARK = ',"chain":"'
/** Begins a body that is written as received and ends before the last brace of the line. */
const RAW = ',"raw":'

const frameSchema = z.looseObject({
  frame: z.enum(FRAME_KINDS),
  sha256: z.string().optional(),
  encoding: z.literal('base64').optional(),
  at: z.array(z.string()).optional(),
})
const bodySchema = z.object({body: z.string()})

const digest = (content: string | Buffer) => hash('sha256', content)

/**
 * A body that is one line of UTF-8 is written as received, several lines as JSON text, anything else as base64. The chain covers
 * only the digest of the body, so the body may be dropped later.
 */
function formatLine(
  frame: Frame,
  body: Buffer | undefined,
  previous: string,
): {parts: Buffer[]; chain: string} {
  const isText = body === undefined || isUtf8(body)
  const covered = JSON.stringify({
    ...frame,
    ...(body && {sha256: digest(body)}),
    ...(!isText && {encoding: 'base64'}),
  }).replaceAll(MARK, ',"\\u0063hain":"')
  const chain = digest(`${previous}\n${covered}`)
  const said = `${covered.slice(0, -1)}${MARK}${chain}"`
  if (body && isText && !body.includes('\n'))
    return {parts: [Buffer.from(`${said}${RAW}`), body, Buffer.from('}\n')], chain}
  const text = body && `,"body":${JSON.stringify(body.toString(isText ? 'utf8' : 'base64'))}`
  return {parts: [Buffer.from(`${said}${text ?? ''}}\n`)], chain}
}

const requestSchema = z.looseObject({path: z.string()})

/** `/deals?limit=100`. */
export function targetOf({request}: Frame): string {
  const {path, ...query} = requestSchema.parse(request)
  const asked = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) asked.set(name, String(value))
  return asked.size > 0 ? `${path}?${asked}` : path
}

/**
 * Verifies the body and, with `previous`, the chain.
 * @throws UnexpectedError `DATA_NEWER` for a kind of line that this version does not know
 */
function parseLine(path: string, text: string, previous?: string): TapeLine | {problem: string} {
  const end = text.indexOf(MARK)
  const covered = `${text.slice(0, end)}}`
  const chain = text.slice(end + MARK.length, end + MARK.length + CHAIN_START.length)
  if (previous !== undefined && chain !== digest(`${previous}\n${covered}`))
    return {problem: 'it does not follow the line before'}
  const found = frameSchema.safeParse(JSON.parse(covered))
  if (!found.success)
    throw newError(
      'DATA_NEWER',
      `Tape '${path}': this version of loantape cannot read a line of it: ${messageOf(found.error)}.`,
    )
  const {sha256, encoding, ...frame} = found.data
  const said = text.slice(end + MARK.length + chain.length + 1)
  const line = {frame, sha256, chain, bare: `${text.slice(0, -said.length)}}`}
  if (sha256 === undefined || said === '}') return {...line, body: undefined}
  const written = said.startsWith(RAW)
    ? said.slice(RAW.length, -1)
    : bodySchema.parse(JSON.parse(`{${said.slice(1)}`)).body
  const body = Buffer.from(written, encoding ?? 'utf8')
  return digest(body) === sha256 ? {...line, body} : {problem: 'its body is not what was received'}
}

/*
 * A tape is a header line `loantape tape 1 <fingerprint of its key> <id of its data folder> <its id>` and groups of lines. A group
 * is its length in 4 bytes, a nonce of 12 bytes, the lines compressed with zstd and encrypted with AES-256-GCM, and a tag of 16
 * bytes. The two ids and the number of the group, from 0, are authenticated with it: no group can be moved within its tape or to
 * another.
 */

const CIPHER = 'aes-256-gcm'
const [LENGTH_BYTES, NONCE_BYTES, TAG_BYTES] = [4, 12, 16]
/** A reader takes the lines of a group as one text, which cannot have more than 512 MB. */
const FULL_GROUP = 2 ** 26
const HEADER = /^loantape tape 1 ([0-9a-f]{16}) (([0-9a-f]{16}) [0-9a-f]{16})\n$/
const HEADER_BYTES = 'loantape tape 1 '.length + 16 + 1 + 16 + 1 + 16 + 1

function seal(packed: Buffer, {tapeId, number}: {tapeId: string; number: number}, key: TapeKey): Buffer {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv(CIPHER, key.bytes, nonce).setAAD(Buffer.from(`${tapeId} ${number}`))
  const sealed = [cipher.update(packed), cipher.final(), cipher.getAuthTag()]
  const length = Buffer.alloc(LENGTH_BYTES)
  length.writeUInt32BE(sealed.reduce((total, part) => total + part.length, NONCE_BYTES))
  return Buffer.concat([length, nonce, ...sealed])
}

/** Null if a byte was changed, or the group belongs to another place or key. */
function unseal({header, read}: TapeFile, {number, from, to}: Group, key: TapeKey): string[] | null {
  const sealed = read(from, to - from)
  const end = sealed.length - TAG_BYTES
  const decipher = createDecipheriv(CIPHER, key.bytes, sealed.subarray(0, NONCE_BYTES))
    .setAAD(Buffer.from(`${header?.tapeId} ${number}`))
    .setAuthTag(sealed.subarray(end))
  try {
    const packed = Buffer.concat([decipher.update(sealed.subarray(NONCE_BYTES, end)), decipher.final()])
    return zstdDecompressSync(packed).toString().split('\n').slice(0, -1)
  } catch {
    // The tag did not match; the error says no more.
    return null
  }
}

export function createTape(path: string, key: TapeKey, folderId: string): TapeWriter {
  createFolder(dirname(path))
  const tapeId = `${folderId} ${randomBytes(8).toString('hex')}`
  writeFileSync(path, `loantape tape 1 ${key.fingerprint} ${tapeId}\n`, {mode: 0o600})
  syncToDisk(path)
  syncToDisk(dirname(path))
  return writeTape(path, key, {tapeId, groups: 0, bytes: HEADER_BYTES, chain: CHAIN_START})
}

/** Written atomically, as one group, first under a temporary name in the folder of all tapes. */
export function writeWholeTape(
  {tapes, path}: {tapes: string; path: string},
  lines: readonly {frame: Frame; body?: Buffer}[],
  key: TapeKey,
  folderId: string,
): {chain: string; bytes: number; sha256: string} {
  removeAbandoned(tapes, WRITING)
  const temporary = temporaryBeside(join(tapes, basename(path)))
  using tape = createTape(temporary, key, folderId)
  for (const {frame, body} of lines) tape.add(frame, body)
  const written = tape.finish()
  createFolder(dirname(path))
  moveIntoPlace(temporary, path)
  return {...written, chain: tape.chain}
}

/** Continues after the last whole group; cuts off a torn rest. */
export function resumeTape(path: string, key: TapeKey, end: TapeEnd): TapeWriter {
  truncateSync(path, end.bytes)
  syncToDisk(path)
  return writeTape(path, key, end)
}

/** Disposing it closes the file and drops lines that were not stored. */
export type TapeWriter = ReturnType<typeof writeTape>
function writeTape(
  path: string,
  key: TapeKey,
  {tapeId, ...start}: Pick<TapeEnd, 'tapeId' | 'groups' | 'bytes' | 'chain'>,
) {
  const file = openSync(path, 'r+')
  let {groups, bytes, chain} = start
  const added: Buffer[] = []
  let waiting = 0
  let failure: {cause: unknown} | undefined

  function store(): void {
    // A failed write may be torn; only reading the tape again finds its end.
    if (failure) throw failure.cause
    if (added.length === 0) return
    try {
      const packed = zstdCompressSync(Buffer.concat(added.splice(0)))
      const sealed = seal(packed, {tapeId, number: groups}, key)
      // A disk that fills up writes a part, then fails at the rest.
      for (let done = 0; done < sealed.length; )
        done += writeSync(file, sealed, done, sealed.length - done, bytes + done)
      fdatasyncSync(file)
      groups += 1
      bytes += sealed.length
      waiting = 0
    } catch (cause) {
      failure = {cause}
      throw cause
    }
  }

  return {
    /** The chain of the last line added. */
    get chain() {
      return chain
    },
    /** The line is on the tape after `store`, or sooner. */
    add(frame: Frame, body?: Buffer): void {
      const line = formatLine(frame, body, chain)
      ;({chain} = line)
      added.push(...line.parts)
      waiting += line.parts.reduce((total, part) => total + part.length, 0)
      if (waiting > FULL_GROUP) store()
    },
    /** Writes the added lines to the disk as one group. After one failure, every call fails. */
    store,
    /** Also makes the file read-only. */
    finish(): {sha256: string; bytes: number} {
      store()
      chmodSync(path, 0o400)
      return {sha256: digestFileNow(path), bytes}
    },
    [Symbol.dispose]: () => closeSync(file),
  }
}

type TapeFile = ReturnType<typeof openTapeFile>
function openTapeFile(path: string) {
  const file = openSync(path, 'r')
  const stats = fstatSync(file)
  const {size} = stats
  const read = (from: number, length: number) => {
    const bytes = Buffer.alloc(Math.min(length, size - from))
    readSync(file, bytes, 0, bytes.length, from)
    return bytes
  }
  const head = stats.isFile() ? read(0, HEADER_BYTES).toString('latin1') : ''
  const [, fingerprint, tapeId, folderId] = HEADER.exec(head) ?? []
  /** Undefined if the file does not begin like a tape. */
  const header = fingerprint && tapeId && folderId ? {fingerprint, tapeId, folderId} : undefined
  return {size, header, read, [Symbol.dispose]: () => closeSync(file)}
}

/** `number` counts from 0. */
interface Group {
  number: number
  from: number
  to: number
}

/** Finds groups by their lengths alone. */
function* listGroups({size, read}: TapeFile): Generator<Group> {
  let at = HEADER_BYTES
  for (let number = 0; at + LENGTH_BYTES <= size; number += 1) {
    const from = at + LENGTH_BYTES
    const length = read(at, LENGTH_BYTES).readUInt32BE(0)
    if (length <= NONCE_BYTES + TAG_BYTES || from + length > size) return
    at = from + length
    yield {number, from, to: at}
  }
}

export interface TapeEnd {
  /** The id of the tape; empty if its header is unreadable. */
  tapeId: string
  groups: number
  lines: number
  /** Where its last whole group ends. */
  bytes: number
  /** The chain of the last whole line. */
  chain: string
  /** What is wrong after that; null if nothing is. */
  problem: string | null
}

/**
 * Numbered from 1. For a translated answer, `original` is the line before, with what the source sent. `parts` are the bodies of
 * the parts before it.
 */
export type NumberedLine = TapeLine & {number: number; original?: NumberedLine | undefined; parts: Buffer[]}

/**
 * Reads group by group, so that a long tape needs no more memory. `end` says how far it has been read so far.
 * @throws ConfigError `TAPE_KEY_WRONG` if it is sealed with another key
 */
export function openTape(path: string, key: TapeKey): {lines: Generator<NumberedLine>; end: TapeEnd} {
  const end: TapeEnd = {tapeId: '', groups: 0, lines: 0, bytes: 0, chain: CHAIN_START, problem: null}
  const stop = (problem: string) => {
    end.problem = problem
  }
  function* read(): Generator<NumberedLine> {
    using file = openTapeFile(path)
    const {size, header} = file
    if (!header) return stop('it does not begin like a tape')
    if (header.fingerprint !== key.fingerprint)
      throw newError(
        'TAPE_KEY_WRONG',
        `Tape '${path}' is sealed with key ${header.fingerprint}: the key at hand is ${key.fingerprint}.`,
      )
    Object.assign(end, {tapeId: header.tapeId, bytes: HEADER_BYTES})
    let before: NumberedLine | undefined
    let parts: Buffer[] = []
    for (const group of listGroups(file)) {
      const texts = unseal(file, group, key)
      if (texts === null) return stop('its bytes are not those that were written')
      const lines: NumberedLine[] = []
      let {chain, lines: number} = end
      for (const text of texts) {
        const line = parseLine(path, text, chain)
        if ('problem' in line) return stop(line.problem)
        ;({chain} = line)
        number += 1
        const original = before?.frame.frame === 'received' ? before : undefined
        before = {...line, number, original, parts}
        lines.push(before)
        if (line.frame.frame !== 'part') parts = []
        else if (line.body) parts.push(line.body)
      }
      Object.assign(end, {bytes: group.to, chain, groups: group.number + 1, lines: number})
      yield* lines
    }
    if (end.bytes < size) stop('it is cut off')
  }
  return {lines: read(), end}
}

/** Undefined if the file is not a tape. */
export function readTapeHeader(path: string): TapeFile['header'] {
  using file = openTapeFile(path)
  return file.header
}

/** The last whole line of a tape, and where its last whole group ends. Verifies no chain. */
export function readEnd(path: string, key: TapeKey): {last: TapeLine | undefined; bytes: number} {
  using file = openTapeFile(path)
  const group = file.header && [...listGroups(file)].at(-1)
  if (!group) return {last: undefined, bytes: HEADER_BYTES}
  const text = unseal(file, group, key)?.at(-1)
  const last = text === undefined ? undefined : parseLine(path, text)
  return {last: last && 'chain' in last ? last : undefined, bytes: group.to}
}

/** The tape must be whole, unless it is still open. @throws ConfigError `TAPE_KEY_WRONG`; UnexpectedError `TAPE_DAMAGED` */
export function* readLines(path: string, key: TapeKey, isOpen = false): Generator<NumberedLine> {
  const {lines, end} = openTape(path, key)
  yield* lines
  if (!isOpen && end.problem !== null)
    throw newError('TAPE_DAMAGED', `Tape '${path}' after line ${end.lines}: ${end.problem}.`)
}
