import {createHash, hash, randomUUID} from 'node:crypto'
import {
  closeSync,
  createReadStream,
  createWriteStream,
  existsSync,
  fsyncSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import {tmpdir} from 'node:os'
import {basename, join} from 'node:path'
import {Readable} from 'node:stream'
import {pipeline} from 'node:stream/promises'
import {fileTypeFromFile} from 'file-type'
import {z} from 'zod'
import type {ReceivedFile} from '../contract/document.ts'
import {HOUR_MS} from '../core/clock.ts'
import {isOtherProcess} from '../core/process.ts'
import {refuse} from './refusal.ts'
import type {ServiceDatabase} from './service-database.ts'

/** The files of documents, named by document id; names that callers send are never used as paths. */
export type FileStore = ReturnType<typeof openFileStore>

/** PDF, scans and office documents; plain text is recognised by its bytes. */
const KEPT_TYPES = new Set([
  'application/pdf',
  'image/jpeg',
  'image/png',
  'image/tiff',
  'image/heic',
  'application/vnd.openxmlformats-officedocument.wordprocessingml.document',
  'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet',
  'application/x-cfb',
])

/** No upload takes longer; after this, the pid may belong to another program. */
const LONGEST_UPLOAD_MS = HOUR_MS

function syncPath(path: string): void {
  const handle = openSync(path, 'r')
  try {
    fsyncSync(handle)
  } finally {
    closeSync(handle)
  }
}

/** Measures a stream while it passes. */
function createMeter() {
  const digest = createHash('sha256')
  const decoder = new TextDecoder('utf-8', {fatal: true})
  let [bytes, isText] = [0, true]
  const readText = (chunk?: Buffer): void => {
    try {
      if (isText) isText = !decoder.decode(chunk, {stream: chunk !== undefined}).includes('\0')
    } catch (error) {
      if (!(error instanceof TypeError)) throw error
      isText = false
    }
  }
  return {
    async *measure(stream: AsyncIterable<Buffer>) {
      for await (const chunk of stream) {
        digest.update(chunk)
        bytes += chunk.length
        readText(chunk)
        yield chunk
      }
      readText()
    },
    result: () => ({bytes, sha256: digest.digest('hex'), isText}),
  }
}

async function readMediaType(path: string, isText: boolean): Promise<string> {
  const mime = (await fileTypeFromFile(path))?.mime
  if (mime !== undefined && KEPT_TYPES.has(mime)) return mime
  if (mime === undefined && isText) return 'text/plain; charset=utf-8'
  const detail =
    'Accepted are PDF, JPEG, PNG, TIFF, HEIC, Word, Excel and plain text files; this file has another type.'
  throw refuse('unsupported_file_type', {detail})
}

/** Whether another running service is receiving this file, named `incoming-<pid>-…`. */
function isIncoming(path: string): boolean {
  const pid = Number(/^incoming-(\d+)-/.exec(basename(path))?.[1] ?? process.pid)
  if (!isOtherProcess(pid)) return false
  const {mtimeMs = 0} = statSync(path, {throwIfNoEntry: false}) ?? {}
  return Date.now() - mtimeMs < LONGEST_UPLOAD_MS
}

/**
 * Removes files that a killed service left behind: partial uploads, and files whose document was never committed or is
 * deleted. The transaction keeps other services from naming a file before they commit its row.
 */
function removeOrphans(folder: string, database: ServiceDatabase): void {
  database.transaction(() => {
    const rows = database.all(z.object({id: z.string()}), 'select id from document')
    const known = new Set(rows.map(({id}) => id))
    for (const name of readdirSync(folder)) {
      const path = join(folder, name)
      if (!known.has(name) && !isIncoming(path)) rmSync(path, {force: true})
    }
  })
}

/** Opens the files beside the database file; for a database in memory, in a temporary folder. */
export function openFileStore(database: ServiceDatabase) {
  const isKept = database.path !== ':memory:'
  let folder: string | undefined
  const openFolder = (): string => {
    if (folder !== undefined) return folder
    folder = isKept ? `${database.path}.files` : mkdtempSync(join(tmpdir(), 'loantape-service-files-'))
    mkdirSync(folder, {recursive: true, mode: 0o700})
    return folder
  }
  const temporaryPath = (): string => join(openFolder(), `incoming-${process.pid}-${randomUUID()}`)
  if (isKept && existsSync(`${database.path}.files`)) removeOrphans(openFolder(), database)
  /** Removes a received file unless it was kept. */
  const discard = ({path}: {path: string}): void => rmSync(path, {force: true})

  return {
    /** Streams a file to the disk under a temporary name. @throws Refusal (415) if its type is refused */
    async receive(stream: Readable): Promise<Omit<ReceivedFile, 'fileName'>> {
      const path = temporaryPath()
      const meter = createMeter()
      try {
        await pipeline(stream, meter.measure, createWriteStream(path, {flush: true}))
        const {bytes, sha256, isText} = meter.result()
        return {path, bytes, sha256, mediaType: await readMediaType(path, isText)}
      } catch (error) {
        discard({path})
        throw error
      }
    },
    /** Gives a received file its final name, durably; if its row is rolled back it is an orphan. */
    keep({path}: ReceivedFile, documentId: string): void {
      renameSync(path, join(openFolder(), documentId))
      syncPath(openFolder())
    },
    /** Stores the file of a synthetic document in the database, within the current transaction. */
    place(documentId: string, content: string): void {
      database.insert('made_up_file', {document_id: documentId, content})
    },
    /** Writes a generated file. */
    write(content: string): ReceivedFile {
      const path = temporaryPath()
      writeFileSync(path, content, {flush: true})
      return {
        path,
        fileName: null,
        bytes: Buffer.byteLength(content),
        sha256: hash('sha256', content),
        mediaType: 'text/markdown; charset=utf-8',
      }
    },
    open(documentId: string): Readable {
      const madeUp = database.get(
        z.object({content: z.string()}),
        'select content from made_up_file where document_id = ?',
        documentId,
      )
      return madeUp ? Readable.from([madeUp.content]) : createReadStream(join(openFolder(), documentId))
    },
    discard,
    /** Removes the files of a deal's documents once the transaction is committed. */
    removeOfDeal(dealId: string): void {
      const ids = database.all(
        z.object({id: z.string()}),
        'select id from document where deal_id = ?',
        dealId,
      )
      database.afterCommit(() => {
        for (const {id} of ids) rmSync(join(openFolder(), id), {force: true})
      })
    },
    close(): void {
      if (folder !== undefined && !isKept) rmSync(folder, {recursive: true, force: true})
    },
  }
}
