import {closeSync, fstatSync, openSync, readSync, writeSync} from 'node:fs'
import {newError} from '../errors.ts'

/** 1980-01-01 00:00, the first instant a ZIP archive can name: time and date words, little-endian. */
const FIRST_INSTANT: Buffer = Buffer.from([0, 0, 0x21, 0])

const END_BYTES = 22
const END_SIGNATURE = 0x06054b50
const ENTRY_BYTES = 46

/**
 * Sets the time of every entry of a ZIP archive to 1980-01-01, so that the same content is the same bytes whenever it is
 * written (APPNOTE.TXT 4.3.7, 4.3.12).
 */
export function pinZipDates(path: string): void {
  const file = openSync(path, 'r+')
  try {
    const {entries, size, offset} = readEnd(file, path)
    const directory = readBytes(file, offset, size)
    let at = 0
    for (let entry = 0; entry < entries; entry++) {
      writeSync(file, FIRST_INSTANT, 0, 4, offset + at + 12)
      writeSync(file, FIRST_INSTANT, 0, 4, directory.readUInt32LE(at + 42) + 10)
      const [name, extra, comment] = [28, 30, 32].map((place) => directory.readUInt16LE(at + place))
      at += ENTRY_BYTES + (name ?? 0) + (extra ?? 0) + (comment ?? 0)
    }
  } finally {
    closeSync(file)
  }
}

/** The end of the central directory; the archives written here have no comment behind it. */
function readEnd(file: number, path: string): {entries: number; size: number; offset: number} {
  const bytes = fstatSync(file).size
  const end = readBytes(file, Math.max(0, bytes - END_BYTES), END_BYTES)
  const offset = end.readUInt32LE(16)
  if (end.readUInt32LE(0) === END_SIGNATURE && offset < 0xffffffff) {
    return {entries: end.readUInt16LE(10), size: end.readUInt32LE(12), offset}
  }
  throw newError('EXPORT_XLSX_TOO_LARGE', `Workbook '${path}' has ${bytes} bytes: expected less than 4 GB.`)
}

function readBytes(file: number, position: number, length: number): Buffer {
  const bytes = Buffer.alloc(length)
  readSync(file, bytes, 0, length, position)
  return bytes
}
