import {isUtf8} from 'node:buffer'
import {hash, randomUUID} from 'node:crypto'
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
  writeFileSync,
} from 'node:fs'
import {readFile} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {Readable} from 'node:stream'
import {pipeline} from 'node:stream/promises'
import type {FastifyRequest} from 'fastify'
import {fileTypeFromBuffer} from 'file-type'
import {z} from 'zod'
import {
  type DealDocument,
  type DocumentGeneration,
  documentGenerationSchema,
  documentSchema,
  type NewDocumentGeneration,
  type ReceivedFile,
} from '../contract/document.ts'
import {codeOf} from '../core/errors.ts'
import {formatCents, groupThousands} from '../core/money.ts'
import {isAbandoned, WRITER_MARK, WRITING} from '../core/process.ts'
import {createDealListing, type DealWorld, requireDeal, type StoredDeal} from './deals.ts'
import {type Handlers, PREFIX, Refusal, refuse, requireFound} from './requests.ts'
import {createId, rowInstant, type ServiceDatabase} from './service-database.ts'

/** The files of documents, named by document id; names that callers send are never used as paths. */
export type FileStore = ReturnType<typeof openFileStore>

const idRow = z.object({id: z.string()})
const SELECT_IDS = 'select id from document where deal_id = ?'

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

function syncFolder(path: string): void {
  const handle = openSync(path, 'r')
  try {
    fsyncSync(handle)
  } finally {
    closeSync(handle)
  }
}

async function readMediaType(content: Buffer): Promise<string> {
  const mime = (await fileTypeFromBuffer(content))?.mime
  if (mime !== undefined && KEPT_TYPES.has(mime)) return mime
  if (mime === undefined && isUtf8(content) && !content.includes(0)) return 'text/plain; charset=utf-8'
  const detail =
    'Accepted are PDF, JPEG, PNG, TIFF, HEIC, Word, Excel and plain text files; this file has another type.'
  throw refuse('unsupported_file_type', {detail})
}

/**
 * Removes files that a killed service left behind: partial uploads, and files whose document was never committed or is
 * deleted. The transaction keeps other services from naming a file before they commit its row.
 */
function removeOrphans(folder: string, database: ServiceDatabase): void {
  database.transaction(() => {
    const rows = database.all(idRow, 'select id from document')
    const known = new Set(rows.map(({id}) => id))
    for (const name of readdirSync(folder)) {
      const path = join(folder, name)
      const isReceived = name.startsWith(WRITING) && !isAbandoned(path)
      if (!known.has(name) && !isReceived) rmSync(path, {force: true})
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
  const temporaryPath = (): string => join(openFolder(), `${WRITING}${randomUUID()}${WRITER_MARK}`)
  if (isKept && existsSync(`${database.path}.files`)) removeOrphans(openFolder(), database)
  /** Removes a received file unless it was kept. */
  const discard = ({path}: {path: string}): void => rmSync(path, {force: true})

  return {
    /** Streams a file to the disk under a temporary name. @throws Refusal (415) if its type is refused */
    async receive(stream: Readable): Promise<Omit<ReceivedFile, 'fileName'>> {
      const path = temporaryPath()
      try {
        await pipeline(stream, createWriteStream(path, {flush: true}))
        const content = await readFile(path)
        const mediaType = await readMediaType(content)
        return {path, bytes: content.length, sha256: hash('sha256', content), mediaType}
      } catch (error) {
        discard({path})
        throw error
      }
    },
    /** Gives a received file its final name, durably; if its row is rolled back it is an orphan. */
    keep({path}: ReceivedFile, documentId: string): void {
      renameSync(path, join(openFolder(), documentId))
      syncFolder(openFolder())
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
      const madeUp = database.first(
        z.object({content: z.string()}),
        'select content from made_up_file where document_id = ?',
        [documentId],
      )
      return madeUp ? Readable.from([madeUp.content]) : createReadStream(join(openFolder(), documentId))
    },
    discard,
    /** Removes the files of a deal's documents once the transaction is committed. */
    removeOfDeal(dealId: string): void {
      const ids = database.all(idRow, SELECT_IDS, [dealId])
      database.afterCommit(() => {
        for (const {id} of ids) rmSync(join(openFolder(), id), {force: true})
      })
    },
    close(): void {
      if (folder !== undefined && !isKept) rmSync(folder, {recursive: true, force: true})
    },
  }
}

/** What operations on documents work on. */
export interface DocumentWorld extends DealWorld {
  files: FileStore
}

const documentRow = documentSchema.extend({created_at: rowInstant})

function requireDocument(database: ServiceDatabase, dealId: string, id: string): DealDocument {
  const sql = 'select * from document where id = ? and deal_id = ?'
  return requireFound(database.first(documentRow, sql, [id, dealId]), 'document_not_found')
}

/** Attaches a received file to a deal, within the current transaction. */
function attachDocument(
  {dealId, category, name, file}: {dealId: string; category: string; name: string; file: ReceivedFile},
  {database, files, clock, emit}: DocumentWorld,
): DealDocument {
  const id = createId('doc')
  files.keep(file, id)
  emit({type: 'document.uploaded', data: {id, deal_id: dealId, category}})
  return database.create(documentRow, 'document', {
    id,
    deal_id: dealId,
    category,
    name,
    file_name: file.fileName,
    media_type: file.mediaType,
    bytes: file.bytes,
    sha256: file.sha256,
    created_at: clock.now(),
  })
}

/** `attachment` with a name in any script (RFC 6266, RFC 8187). */
function formatDisposition({file_name, name}: DealDocument): string {
  const encoded = encodeURIComponent(file_name ?? name).replace(
    /['()*]/g,
    (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`,
  )
  return `attachment; filename*=UTF-8''${encoded}`
}

/** Creates the operations on documents and their generations, and the generator. @param onError gets errors of background work */
export function createDocuments(world: DocumentWorld, onError: (error: unknown) => void) {
  const {wake, stop} = createGenerator(world, onError)
  return {handlers: {...createDocumentHandlers(world), ...createGenerationHandlers(world, wake)}, wake, stop}
}

/** Creates the operations on documents. */
function createDocumentHandlers(world: DocumentWorld) {
  const {database, files, documentsPerDeal} = world
  return {
    uploadDocument: ({id: dealId, body}) => {
      const ids = database.all(idRow, SELECT_IDS, [dealId])
      if (ids.length >= documentsPerDeal)
        throw refuse('too_many_documents', {detail: `A deal has at most ${documentsPerDeal} documents.`})
      const document = attachDocument({...body, dealId}, world)
      const location = `${PREFIX}/deals/${dealId}/documents/${document.id}`
      return {body: {data: document}, headers: {Location: location}}
    },
    listDocuments: createDealListing(world, 'document', documentRow),
    getDocument: ({id, childId}) => ({body: {data: requireDocument(database, id, childId)}}),
    downloadDocument: ({id, childId}) => {
      const document = requireDocument(database, id, childId)
      const headers = {
        'Content-Type': document.media_type,
        'Content-Length': String(document.bytes),
        'Content-Disposition': formatDisposition(document),
        'X-Content-Type-Options': 'nosniff',
        'Content-Security-Policy': "default-src 'none'; sandbox",
        'Repr-Digest': `sha-256=:${Buffer.from(document.sha256, 'hex').toString('base64')}:`,
      }
      return {body: files.open(document.id), headers}
    },
  } satisfies Partial<Handlers>
}

/** A file name safe to show: without folders, control characters and characters that change the reading direction. */
function cleanFileName(name: string | undefined): string | null {
  const cleaned = (name ?? '')
    .replace(/^.*[\\/]/, '')
    .replace(/[\p{Cc}\p{Cs}\p{Bidi_Control}]/gu, '')
    .slice(0, 255)
  return cleaned === '' ? null : cleaned
}

/** Refusals and disk faults; every other error is the parser's complaint about the body. */
function isOurFault(error: unknown): boolean {
  if (!(error instanceof Error) || error instanceof Refusal || codeOf(error).startsWith('FST_')) return true
  return 'syscall' in error && !['ECONNRESET', 'EPIPE'].includes(codeOf(error))
}

/**
 * Receives a multipart body: the part `file` is streamed to the disk, the others are text fields.
 *
 * @throws Refusal if a part is too large, of a refused type, or unknown; no file is left behind
 */
export async function receiveParts(request: FastifyRequest, files: FileStore) {
  const parts: {fields: Record<string, unknown>; file?: ReceivedFile} = {fields: {}}
  try {
    for await (const part of request.parts()) {
      if (part.type === 'field') {
        if (part.valueTruncated)
          throw refuse('body_too_large', {detail: 'A field is longer than 1,000 bytes.'})
        parts.fields[part.fieldname] = part.value
        continue
      }
      if (part.fieldname !== 'file') {
        const errors = [{path: cleanFileName(part.fieldname) ?? 'body', message: 'unknown file'}]
        throw refuse('invalid_body', {detail: 'The file is expected in the part named file.', errors})
      }
      const received = await files.receive(part.file)
      parts.file = {...received, fileName: cleanFileName(part.filename)}
      if (part.file.truncated) throw refuse('body_too_large', {detail: 'The file is larger than allowed.'})
      if (received.bytes === 0)
        throw refuse('invalid_body', {errors: [{path: 'file', message: 'expected a file that is not empty'}]})
    }
    return parts
  } catch (error) {
    if (parts.file) files.discard(parts.file)
    throw isOurFault(error) ? error : refuse('malformed_body', {detail: 'The multipart body cannot be read.'})
  }
}

const generationRow = documentGenerationSchema.extend({
  created_at: rowInstant,
  finished_at: rowInstant.nullable(),
})

const SELECT_ONE = 'select * from document_generation where id = ? and deal_id = ?'
const SELECT_QUEUED = `select * from document_generation where status = 'queued' order by created_at, id limit 1`
type Linked = z.output<typeof linkedRow>
const linkedRow = z.object({borrowers: z.number(), open_tasks: z.number()})
const COUNT_LINKED = `select
  (select count(*) from borrower where deal_id = ?1) as borrowers,
  (select count(*) from task where deal_id = ?1 and status = 'open') as open_tasks`

/** Creates the operations on document generations; `onRequested` is called once one is committed. */
function createGenerationHandlers(world: DocumentWorld, onRequested: () => void) {
  const {database, clock} = world
  return {
    requestDocumentGeneration: ({id: deal_id, body: {template}}) => {
      const row = {id: createId('gen'), deal_id, template, status: 'queued', created_at: clock.now()}
      const data = database.create(generationRow, 'document_generation', row)
      database.afterCommit(onRequested)
      const Location = `${PREFIX}/deals/${deal_id}/document-generations/${data.id}`
      return {body: {data}, headers: {Location}}
    },
    listDocumentGenerations: createDealListing(world, 'document_generation', generationRow),
    getDocumentGeneration: ({id, childId}) => {
      const found = database.first(generationRow, SELECT_ONE, [childId, id])
      return {body: {data: requireFound(found, 'document_generation_not_found')}}
    },
  } satisfies Partial<Handlers>
}

/** Makes the document of one generation: file, row and event are stored together or not at all. */
function generateOne(
  generation: DocumentGeneration,
  world: DocumentWorld,
  onError: (error: unknown) => void,
): void {
  const {id, deal_id: dealId, template} = generation
  const {database, store, files, clock} = world
  const finish = (status: string, document_id: string | null) =>
    database.update('document_generation', {id}, {status, document_id, finished_at: clock.now()})
  const {name, render} = TEMPLATES[template]
  const linked = linkedRow.parse(database.first(linkedRow, COUNT_LINKED, [dealId]))
  const file = files.write([`# ${name}`, '', ...render(requireDeal(store, dealId), linked), ''].join('\n'))
  const document = {dealId, category: template, name, file}
  try {
    database.transaction(() => finish('completed', attachDocument(document, world).id))
  } catch (error) {
    finish('failed', null)
    onError(error)
  } finally {
    files.discard(file)
  }
}

/** Makes documents in the background; the next service continues after a kill. */
function createGenerator(world: DocumentWorld, onError: (error: unknown) => void) {
  let scheduled: NodeJS.Immediate | undefined
  const wake = (): void => {
    scheduled ??= setImmediate(() => {
      scheduled = undefined
      const next = world.database.first(generationRow, SELECT_QUEUED)
      if (!next) return
      try {
        generateOne(next, world, onError)
        wake()
      } catch (error) {
        onError(error)
      }
    })
  }
  return {
    wake,
    stop: () => {
      if (scheduled) clearImmediate(scheduled)
    },
  }
}

const dollars = (cents: bigint | null): string =>
  cents === null ? 'to be determined' : `$${groupThousands(formatCents(cents))}`

/** A text as one line without Markdown. */
const plain = (text: string): string => text.replace(/\s+/g, ' ').replace(/[\\`*_{}[\]<>()#+!|-]/g, '\\$&')

/** Loan-to-value in percent with two places, half up; the quotient of cents is exact. */
function formatLtv({loanAmountCents, propertyValueCents}: StoredDeal): string {
  if (propertyValueCents === null || propertyValueCents <= 0n) return 'to be determined'
  const hundredths = (loanAmountCents * 20_000n + propertyValueCents) / (2n * propertyValueCents)
  return `${formatCents(hundredths)} %`
}

/** The documents that can be made of a deal, in Markdown. */
const TEMPLATES: Record<
  NewDocumentGeneration['template'],
  {name: string; render(deal: StoredDeal, linked: Linked): string[]}
> = {
  term_sheet: {
    name: 'Term sheet',
    render: (deal) => [
      '| | |',
      '|---|---|',
      `| Deal | ${deal.id} |`,
      `| Property | ${plain(deal.propertyAddress)} |`,
      `| Loan amount | ${dollars(deal.loanAmountCents)} |`,
      `| Property value | ${dollars(deal.propertyValueCents)} |`,
      `| Loan to value | ${formatLtv(deal)} |`,
      `| Loan program | ${plain(deal.loanProgram ?? 'to be determined')} |`,
      `| Status | ${deal.status} |`,
      '',
      'For discussion only: no commitment to lend.',
    ],
  },
  closing_checklist: {
    name: 'Closing checklist',
    render: (deal, {borrowers, open_tasks}) => {
      const box = (isDone: boolean, words: string) => `- [${isDone ? 'x' : ' '}] ${words}`
      const isFunded = deal.status === 'funded' || deal.status === 'paid_off'
      return [
        `Deal ${deal.id}, ${plain(deal.propertyAddress)}`,
        '',
        box(borrowers > 0, `Borrowers linked: ${borrowers}`),
        box(deal.propertyValueCents !== null, `Property value: ${dollars(deal.propertyValueCents)}`),
        box(deal.loanProgram !== null, `Loan program: ${plain(deal.loanProgram ?? 'to be determined')}`),
        box(open_tasks === 0, `Open tasks: ${open_tasks}`),
        box(isFunded || deal.status === 'approved', 'Approved'),
        box(isFunded, `Funded: ${dollars(deal.loanAmountCents)}`),
      ]
    },
  },
}
