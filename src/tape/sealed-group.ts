import {createCipheriv, createDecipheriv, randomBytes} from 'node:crypto'
import {promisify} from 'node:util'
import {constants, zstdCompress, zstdCompressSync, zstdDecompressSync} from 'node:zlib'
import type {TapeKey} from './key.ts'

/*
 * A tape is a header line `loantape tape 1 <fingerprint of its key> <id of its data folder> <its id>` and groups of lines, each: its
 * length in 4 bytes, then a nonce of 12 bytes, the lines compressed with zstd and encrypted with AES-256-GCM, and the tag of 16 bytes.
 * The two ids and the number of the group, from 0, are authenticated with it: groups cannot change places, nor go to another tape.
 */

const CIPHER = 'aes-256-gcm'
const [NONCE_BYTES, TAG_BYTES] = [12, 16]
const LONGEST_GROUP = 2 ** 31 - 1
const HEADER = /^loantape tape 1 ([0-9a-f]{16}) ([0-9a-f]{16} [0-9a-f]{16})\n$/

/** Bytes of the number before a group that says how long it is. */
export const LENGTH_BYTES = 4
/** Bytes of a tape's first line. */
export const HEADER_BYTES = 'loantape tape 1 '.length + 16 + 1 + 16 + 1 + 16 + 1

const compress = promisify(zstdCompress)

/** Where a group belongs: the ids of its data folder and tape, and its number on that tape, from 0. */
export interface GroupPlace {
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

/** What a header names; null where it is none. */
export function parseHeader(head: Buffer): {fingerprint: string; tapeId: string} | null {
  const [, fingerprint, tapeId] = HEADER.exec(head.toString('latin1')) ?? []
  return fingerprint === undefined || tapeId === undefined ? null : {fingerprint, tapeId}
}

const formatPlace = ({tapeId, number}: GroupPlace) => Buffer.from(`${tapeId} ${number}`)

const CHECKED = {params: {[constants.ZSTD_c_checksumFlag]: 1}}

/** A group of lines as it stands in the file, its length before it. */
export async function sealGroup(text: string, place: GroupPlace, key: TapeKey): Promise<Buffer> {
  return seal(await compress(text, CHECKED), place, key)
}

/** The same, where nobody may come in between. */
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

/** The length of the group that follows; null where it cannot be one. */
export function parseGroupLength(head: Buffer): number | null {
  const length = head.readUInt32BE(0)
  return length > NONCE_BYTES + TAG_BYTES && length <= LONGEST_GROUP ? length : null
}

/** The lines of a group without its length; null where a byte of it is not as it was written, in another place, or under another key. */
export function openGroup(sealed: Buffer, place: GroupPlace, key: TapeKey): string | null {
  const end = sealed.length - TAG_BYTES
  const decipher = createDecipheriv(CIPHER, key.bytes, sealed.subarray(0, NONCE_BYTES))
    .setAAD(formatPlace(place))
    .setAuthTag(sealed.subarray(end))
  try {
    const packed = Buffer.concat([decipher.update(sealed.subarray(NONCE_BYTES, end)), decipher.final()])
    return zstdDecompressSync(packed).toString()
  } catch {
    // The tag is what says so: the cause tells nothing more.
    return null
  }
}
