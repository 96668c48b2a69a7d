import {isUtf8} from 'node:buffer'
import {createCipheriv, createDecipheriv, createHash, createHmac, hkdfSync, randomBytes} from 'node:crypto'
import {existsSync, linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync} from 'node:fs'
import {dirname} from 'node:path'
import {promisify} from 'node:util'
import {constants, zstdCompress, zstdCompressSync, zstdDecompressSync} from 'node:zlib'
import {z} from 'zod'
import {codeOf, type LoantapeError, newError} from '../core/errors.ts'
import {temporaryBeside} from '../core/process.ts'
import {isInside} from './data-folder.ts'
import {syncToDisk} from './files.ts'

/** What a line of a tape says: how a unit began, what was received or done, how it ended. */
const FRAME_KINDS = [
  'begin',
  'list',
  'detail',
  'children',
  'look',
  'rates',
  'replay',
  'act',
  'outcome',
] as const

/** One line of a tape without its body. */
export interface Frame {
  frame: (typeof FRAME_KINDS)[number]
  [field: string]: unknown
}

/** A line that was read. */
export interface TapeLine {
  frame: Frame
  /** The sha256 of the body, even if the body was dropped. */
  sha256: string | undefined
  /** The bytes as received; undefined if there were none or they were dropped. */
  body: Buffer | undefined
  /** sha256 of the chain before and of this line without its body. */
  chain: string
  /** The text that the chain covers. */
  covered: string
}

/** The chain before the first line. */
export const CHAIN_START = '0'.repeat(64)

/** Ends the part that the chain covers. Inside JSON text its quotes would be escaped. */
const MARK = ',"chain":"'
/** Begins a body that is written as received, up to the last brace of the line. */
const RAW = ',"raw":'

const frameSchema = z.looseObject({
  frame: z.enum(FRAME_KINDS),
  sha256: z.string().optional(),
  encoding: z.literal('base64').optional(),
})
const bodySchema = z.object({body: z.string()})

const digest = (content: string | Buffer) => createHash('sha256').update(content).digest('hex')

/**
 * Writes a line: the frame with the sha256 of its body, the chain, the body. A body of one line of UTF-8 is written as received,
 * one of several lines as JSON text, any other as base64. The chain covers the body's digest, so the body may be dropped later.
 */
export function formatLine(
  frame: Frame,
  body: Buffer | undefined,
  previous: string,
): {text: string; chain: string} {
  const isText = body === undefined || isUtf8(body)
  const covered = JSON.stringify({
    ...frame,
    ...(body && {sha256: digest(body)}),
    ...(!isText && {encoding: 'base64'}),
  })
  const chain = digest(`${previous}\n${covered}`)
  return {text: `${covered.slice(0, -1)}${MARK}${chain}"${formatBody(body, isText)}}`, chain}
}

function formatBody(body: Buffer | undefined, isText: boolean): string {
  if (body === undefined) return ''
  const text = body.toString(isText ? 'utf8' : 'base64')
  return isText && !text.includes('\n') ? `${RAW}${text}` : `,"body":${JSON.stringify(text)}`
}

const requestSchema = z.looseObject({path: z.string()})

/** The request of a line: `/deals?limit=100`. */
export function targetOf({request}: Frame): string {
  const {path, ...query} = requestSchema.parse(request)
  const asked = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) asked.set(name, String(value))
  return asked.size > 0 ? `${path}?${asked}` : path
}

/** The text of a line without its body. */
export function formatBare({covered, chain}: TapeLine): string {
  return `${covered.slice(0, -1)}${MARK}${chain}"}`
}

/** The chain that a line states; undefined if it states none. */
export function readChain(text: string): string | undefined {
  const from = text.indexOf(MARK) + MARK.length
  return from < MARK.length ? undefined : text.slice(from, from + CHAIN_START.length)
}

/** Reads a line and verifies that it follows `previous`; otherwise returns what is wrong. */
export function parseLine(text: string, previous: string): TapeLine | {problem: string} {
  const line = readLineAlone(text)
  if (!line) return {problem: 'it has no chain'}
  if (line.chain !== digest(`${previous}\n${line.covered}`))
    return {problem: 'it does not follow the line before'}
  return line.body === undefined || digest(line.body) === line.sha256
    ? line
    : {problem: 'its body is not what was received'}
}

/** Reads a line without verifying it; undefined if it has no chain. */
export function readLineAlone(text: string): TapeLine | undefined {
  const end = text.indexOf(MARK)
  if (end === -1) return undefined
  const covered = `${text.slice(0, end)}}`
  const chain = text.slice(end + MARK.length, end + MARK.length + CHAIN_START.length)
  const {sha256, encoding, ...frame} = frameSchema.parse(JSON.parse(covered))
  const said = text.slice(end + MARK.length + chain.length + 1)
  if (sha256 === undefined || said === '}') return {frame, sha256, body: undefined, chain, covered}
  const body = said.startsWith(RAW)
    ? said.slice(RAW.length, -1)
    : bodySchema.parse(JSON.parse(`{${said.slice(1)}`)).body
  return {frame, sha256, body: Buffer.from(body, encoding ?? 'utf8'), chain, covered}
}

/*
 * A tape is a header line `loantape tape 1 <fingerprint of its key> <id of its data folder> <its id>` and groups of lines. A group
 * is its length in 4 bytes, a nonce of 12 bytes, the lines compressed with zstd and encrypted with AES-256-GCM, and a tag of 16
 * bytes. The two ids and the number of the group, from 0, are authenticated with it: no group can be moved within its tape or to
 * another.
 */

const CIPHER = 'aes-256-gcm'
const [NONCE_BYTES, TAG_BYTES] = [12, 16]
const LONGEST_GROUP = 2 ** 31 - 1
const HEADER = /^loantape tape 1 ([0-9a-f]{16}) ([0-9a-f]{16} [0-9a-f]{16})\n$/

/** Bytes of the length before a group. */
export const LENGTH_BYTES = 4
/** Bytes of a tape's first line. */
export const HEADER_BYTES = 'loantape tape 1 '.length + 16 + 1 + 16 + 1 + 16 + 1

const compress = promisify(zstdCompress)

/** The place of a group: the ids of its data folder and tape, and its number there, from 0. */
interface GroupPlace {
  tapeId: string
  number: number
}

/** The ids of a data folder and of a new tape in it. */
export const createTapeId = (folderId: string) => `${folderId} ${randomBytes(8).toString('hex')}`

/** The data folder that a tape belongs to. */
export const folderOf = (tapeId: string) => tapeId.slice(0, 16)

/** The first line of a tape. */
export function formatHeader({fingerprint}: TapeKey, tapeId: string): string {
  return `loantape tape 1 ${fingerprint} ${tapeId}\n`
}

/** Parses a header; null if it is not one. */
export function parseHeader(head: Buffer): {fingerprint: string; tapeId: string} | null {
  const [, fingerprint, tapeId] = HEADER.exec(head.toString('latin1')) ?? []
  return fingerprint === undefined || tapeId === undefined ? null : {fingerprint, tapeId}
}

const formatPlace = ({tapeId, number}: GroupPlace) => Buffer.from(`${tapeId} ${number}`)

const CHECKED = {params: {[constants.ZSTD_c_checksumFlag]: 1}}

/** Makes a group of lines, preceded by its length. */
export async function sealGroup(text: string, place: GroupPlace, key: TapeKey): Promise<Buffer> {
  return seal(await compress(text, CHECKED), place, key)
}

/** The same, synchronously. */
export function sealGroupNow(text: string, place: GroupPlace, key: TapeKey): Buffer {
  return seal(zstdCompressSync(text, CHECKED), place, key)
}

function seal(packed: Buffer, place: GroupPlace, key: TapeKey): Buffer {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv(CIPHER, key.bytes, nonce).setAAD(formatPlace(place))
  const sealed = [cipher.update(packed), cipher.final(), cipher.getAuthTag()]
  const length = Buffer.alloc(LENGTH_BYTES)
  length.writeUInt32BE(sealed.reduce((total, part) => total + part.length, NONCE_BYTES))
  return Buffer.concat([length, nonce, ...sealed])
}

/** The length of the next group; null if it is impossible. */
export function parseGroupLength(head: Buffer): number | null {
  const length = head.readUInt32BE(0)
  return length > NONCE_BYTES + TAG_BYTES && length <= LONGEST_GROUP ? length : null
}

/** Opens a group; null if a byte was changed, or it belongs to another place or key. */
export function openGroup(sealed: Buffer, place: GroupPlace, key: TapeKey): string | null {
  const end = sealed.length - TAG_BYTES
  const decipher = createDecipheriv(CIPHER, key.bytes, sealed.subarray(0, NONCE_BYTES))
    .setAAD(formatPlace(place))
    .setAuthTag(sealed.subarray(end))
  try {
    const packed = Buffer.concat([decipher.update(sealed.subarray(NONCE_BYTES, end)), decipher.final()])
    return zstdDecompressSync(packed).toString()
  } catch {
    // The tag did not match; the cause says no more.
    return null
  }
}

/** The key that tapes are sealed with. */
export interface TapeKey {
  /** 32 bytes. */
  bytes: Buffer
  /** Names the key without giving it away: 16 hex digits. */
  fingerprint: string
}

const KEY_TEXT = /^[0-9a-f]{64}$/

/** The key made of 32 bytes. */
export function createTapeKey(bytes: Buffer): TapeKey {
  const digest = createHash('sha256').update('loantape tape key').update(bytes).digest('hex')
  return {bytes, fingerprint: digest.slice(0, 16)}
}

/** The MAC of a text under a key derived for this purpose: 64 hex digits. */
export function computeMac({bytes}: TapeKey, purpose: string, text: string): string {
  const derived = Buffer.from(hkdfSync('sha256', bytes, '', purpose, 32))
  return createHmac('sha256', derived).update(text).digest('hex')
}

/**
 * Reads a key; undefined if its file does not exist.
 *
 * @throws ConfigError `TAPE_KEY_FILE` if it cannot be read, or lies inside the data folder, where a copy of the folder would
 * include it
 */
export function readTapeKey(file: string, root: string): TapeKey | undefined {
  requireOutside(file, root)
  if (!existsSync(file)) return undefined
  let text: string
  try {
    text = readFileSync(file, 'utf8').trim()
  } catch (cause) {
    throw createUnreadable(file, `cannot be read (${codeOf(cause)})`, cause)
  }
  if (!KEY_TEXT.test(text)) throw createUnreadable(file, 'expected 64 hex digits')
  return createTapeKey(Buffer.from(text, 'hex'))
}

/**
 * Makes a new key, readable by its owner alone. If another process, such as the first walk of another lender, has just made one,
 * returns that key: replacing it would leave tapes that nobody can read.
 *
 * @throws ConfigError `TAPE_KEY_FILE`
 */
export function makeTapeKey(file: string, root: string): TapeKey {
  requireOutside(file, root)
  const bytes = randomBytes(32)
  try {
    mkdirSync(dirname(file), {recursive: true, mode: 0o700})
    const temporary = temporaryBeside(file)
    writeFileSync(temporary, `${bytes.toString('hex')}\n`, {mode: 0o600})
    syncToDisk(temporary)
    putInPlace(temporary, file)
    syncToDisk(dirname(file))
  } catch (cause) {
    const other = codeOf(cause) === 'EEXIST' ? readTapeKey(file, root) : undefined
    if (other) return other
    throw newError('TAPE_KEY_FILE', `Key of tapes '${file}' cannot be written (${codeOf(cause)}).`, {
      cause,
    })
  }
  return createTapeKey(bytes)
}

/** Errors of file systems without hard links. */
const NO_LINKS = ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']

/** Gives the file its name unless the name is taken; without hard links the last writer wins. */
function putInPlace(temporary: string, file: string): void {
  try {
    linkSync(temporary, file)
  } catch (error) {
    if (!NO_LINKS.includes(codeOf(error))) throw error
    renameSync(temporary, file)
  } finally {
    rmSync(temporary, {force: true})
  }
}

function requireOutside(file: string, root: string): void {
  if (!isInside(file, root)) return
  throw newError(
    'TAPE_KEY_FILE',
    `Key of tapes '${file}' in LOANTAPE_TAPE_KEY_FILE: expected a file outside the data folder, so that a copy of the folder does not include it.`,
  )
}

function createUnreadable(file: string, problem: string, cause?: unknown): LoantapeError {
  return newError('TAPE_KEY_FILE', `Key of tapes '${file}' in LOANTAPE_TAPE_KEY_FILE: ${problem}.`, {
    cause,
  })
}
