import {isUtf8} from 'node:buffer'
import {hash} from 'node:crypto'
import {buffer} from 'node:stream/consumers'
import type {FastifyRequest} from 'fastify'
import {fileTypeFromBuffer} from 'file-type'
import {z} from 'zod'
import {type Deal, isPastFunding} from '../contract/deal.ts'
import {
  type DealDocument,
  type DocumentGeneration,
  documentGenerationSchema,
  documentSchema,
  type NewDocumentGeneration,
  type ReceivedFile,
} from '../contract/document.ts'
import {codeOf} from '../core/errors.ts'
import {centsOf, formatCents, groupThousands} from '../core/money.ts'
import {DEALS} from './deals.ts'
import {Refusal, refuse} from './refusal.ts'
import type {Handlers, ServiceWorld} from './requests.ts'
import {createId, kindOf} from './service-database.ts'

export const MOST_FILE_BYTES = 25 * 1024 * 1024
const MOST_DOCUMENTS = 200

/** PDF, scans and office documents. Plain text is recognised separately, by its bytes. */
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

async function readMediaType(content: Buffer): Promise<string> {
  const mime = (await fileTypeFromBuffer(content))?.mime
  if (mime !== undefined && KEPT_TYPES.has(mime)) return mime
  // Text that begins with words such as BMW or FORM looks like another type.
  if (isUtf8(content) && !content.includes(0)) return 'text/plain; charset=utf-8'
  throw refuse('unsupported_file_type')
}

const DOCUMENTS = kindOf('document', documentSchema, 'document_not_found')

/** Within the current transaction. @throws Refusal (409) if the deal has too many documents */
function attachDocument(
  {dealId, category, name, file}: {dealId: string; category: string; name: string; file: ReceivedFile},
  {database, clock, emit}: ServiceWorld,
): DealDocument {
  const sql = 'select count(*) as documents from document where deal_id = ?'
  const {documents} = database.one(z.object({documents: z.number()}), sql, [dealId])
  if (documents >= MOST_DOCUMENTS)
    throw refuse('too_many_documents', {detail: `A deal has at most ${MOST_DOCUMENTS} documents.`})
  const id = createId('doc')
  const document = database.create(DOCUMENTS, {
    id,
    deal_id: dealId,
    category,
    name,
    file_name: file.fileName,
    media_type: file.mediaType,
    bytes: file.content.length,
    sha256: file.sha256,
    created_at: clock.now(),
  })
  database.insert('document_file', {document_id: id, content: file.content})
  emit({type: 'document.uploaded', data: {id, deal_id: dealId, category}})
  return document
}

/** A name in any script (RFC 6266, RFC 8187). */
function formatDisposition({file_name, name}: DealDocument): string {
  const encoded = encodeURIComponent(file_name ?? name).replace(
    /['()*]/g,
    (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`,
  )
  return `attachment; filename*=UTF-8''${encoded}`
}

const contentRow = z.object({content: z.instanceof(Uint8Array)})

/** `onRequested` is called once a requested generation is committed. */
export function createDocumentHandlers(world: ServiceWorld, onRequested: () => void) {
  const {database, clock} = world
  return {
    uploadDocument: ({id: dealId, body}) => attachDocument({...body, dealId}, world),
    listDocuments: ({id, page}) => database.page(DOCUMENTS, page, {deal_id: id}),
    getDocument: ({id, childId}) => database.record(DOCUMENTS, {id: childId, deal_id: id}),
    downloadDocument: ({id, childId}) => {
      const document = database.record(DOCUMENTS, {id: childId, deal_id: id})
      const sql = 'select content from document_file where document_id = ?'
      const headers = {
        'Content-Type': document.media_type,
        'Content-Length': String(document.bytes),
        'Content-Disposition': formatDisposition(document),
        'X-Content-Type-Options': 'nosniff',
        'Content-Security-Policy': "default-src 'none'; sandbox",
        'Repr-Digest': `sha-256=:${Buffer.from(document.sha256, 'hex').toString('base64')}:`,
      }
      return {headers, ...database.one(contentRow, sql, [childId])}
    },
    requestDocumentGeneration: ({id: deal_id, body: {template}}) => {
      database.afterCommit(onRequested)
      const row = {id: createId('gen'), deal_id, template, status: 'queued', created_at: clock.now()}
      return database.create(GENERATIONS, row)
    },
    listDocumentGenerations: ({id, page}) => database.page(GENERATIONS, page, {deal_id: id}),
    getDocumentGeneration: ({id, childId}) => database.record(GENERATIONS, {id: childId, deal_id: id}),
  } satisfies Partial<Handlers>
}

/** Removes folders, control characters, and characters that change the reading direction. */
function cleanFileName(name: string | undefined): string | null {
  const cleaned = (name ?? '')
    // Forms escape these three characters (HTML, multipart/form-data).
    .replace(/%(?:22|0D|0A)/g, decodeURIComponent)
    .replace(/^.*[\\/]/s, '')
    .replace(/[\p{Cc}\p{Cs}\p{Bidi_Control}]/gu, '')
  return [...cleaned].slice(0, 255).join('') || null
}

/** The part `file`, and text fields, become the body of the request. @throws Refusal */
export async function receiveParts(request: FastifyRequest): Promise<void> {
  const parts: Record<string, unknown> = {}
  try {
    for await (const part of request.isMultipart() ? request.parts() : []) {
      const isField = part.type === 'field'
      const refusePart = (message: string) =>
        refuse('invalid_body', {errors: [{path: cleanFileName(part.fieldname) ?? 'body', message}]})
      if (Object.hasOwn(parts, part.fieldname)) throw refusePart('expected once')
      // The parser writes this character for bytes that are not UTF-8.
      if (String(isField ? part.value : part.filename).includes('\ufffd')) throw refusePart('expected UTF-8')
      if (isField) {
        if (part.valueTruncated)
          throw refuse('body_too_large', {detail: 'A field is longer than 1,000 bytes.'})
        parts[part.fieldname] = part.value
        continue
      }
      if (part.fieldname !== 'file') throw refusePart('expected the file in the part named file')
      const content = await buffer(part.file)
      if (part.file.truncated) throw refuse('body_too_large', {detail: 'The file is larger than allowed.'})
      if (content.length === 0) throw refusePart('expected a file that is not empty')
      const mediaType = await readMediaType(content)
      const fileName = cleanFileName(part.filename)
      parts.file = {content, fileName, sha256: hash('sha256', content), mediaType} satisfies ReceivedFile
    }
    request.body = parts
  } catch (error) {
    // Any other error is the parser's complaint about the body.
    if (error instanceof Refusal || codeOf(error).startsWith('FST_')) throw error
    throw refuse('malformed_body', {detail: 'The multipart body cannot be read.'})
  }
}

const GENERATIONS = kindOf('document_generation', documentGenerationSchema, 'document_generation_not_found')

const SELECT_QUEUED = `select * from document_generation where status = 'queued' order by created_at, id limit 1`
type Linked = z.output<typeof linkedRow>
const linkedRow = z.object({borrowers: z.number(), open_tasks: z.number()})
const COUNT_LINKED = `select
  (select count(*) from borrower where deal_id = ?1) as borrowers,
  (select count(*) from task where deal_id = ?1 and status = 'open') as open_tasks`

/** File, row and event are stored together or not at all. */
function generateOne({id, deal_id: dealId, template}: DocumentGeneration, world: ServiceWorld): void {
  const {database, clock, onError} = world
  const finish = (status: string, document_id: string | null) =>
    database.update('document_generation', {id}, {status, document_id, finished_at: clock.now()})
  const {name, render} = TEMPLATES[template]
  const linked = database.one(linkedRow, COUNT_LINKED, [dealId])
  const lines = [`# ${name}`, '', ...render(database.record(DEALS, {id: dealId}), linked), '']
  const content = Buffer.from(lines.join('\n'))
  const mediaType = 'text/markdown; charset=utf-8'
  const file = {content, fileName: null, sha256: hash('sha256', content), mediaType}
  try {
    database.transaction(() =>
      finish('completed', attachDocument({dealId, category: template, name, file}, world).id),
    )
  } catch (error) {
    finish('failed', null)
    if (!(error instanceof Refusal)) onError(error)
  }
}

/** Works in the background. After a kill, the next service continues. */
export function createGenerator(world: ServiceWorld) {
  let scheduled: NodeJS.Immediate | undefined
  const wake = (): void => {
    scheduled ??= setImmediate(() => {
      scheduled = undefined
      try {
        const next = world.database.first(GENERATIONS.row, SELECT_QUEUED)
        if (!next) return
        generateOne(next, world)
        wake()
      } catch (error) {
        world.onError(error)
      }
    })
  }
  return {wake, stop: () => clearImmediate(scheduled)}
}

const UNKNOWN = 'to be determined'

const dollars = (amount: number | null): string =>
  amount === null ? UNKNOWN : `$${groupThousands(amount.toFixed(2))}`

/** One line without Markdown. */
const plain = (text: string): string => text.replace(/\s+/g, ' ').replace(/[\\`*_{}[\]<>()#+!|-]/g, '\\$&')

/** In percent with two decimals, rounded half up; the quotient of cents is exact. */
function formatLtv({loan_amount, property_value}: Deal): string {
  if (!property_value) return UNKNOWN
  const value = centsOf(property_value.toFixed(2))
  const hundredths = (centsOf(loan_amount.toFixed(2)) * 20_000n + value) / (2n * value)
  return `${formatCents(hundredths)} %`
}

const TEMPLATES: Record<
  NewDocumentGeneration['template'],
  {name: string; render(deal: Deal, linked: Linked): string[]}
> = {
  term_sheet: {
    name: 'Term sheet',
    render: (deal) => [
      '| | |',
      '|---|---|',
      `| Deal | ${deal.id} |`,
      `| Property | ${plain(deal.property_address)} |`,
      `| Loan amount | ${dollars(deal.loan_amount)} |`,
      `| Property value | ${dollars(deal.property_value)} |`,
      `| Loan to value | ${formatLtv(deal)} |`,
      `| Loan program | ${plain(deal.loan_program ?? UNKNOWN)} |`,
      `| Status | ${deal.status} |`,
      '',
      'For discussion only: no commitment to lend.',
    ],
  },
  closing_checklist: {
    name: 'Closing checklist',
    render: (deal, {borrowers, open_tasks}) => {
      const box = (isDone: boolean, words: string) => `- [${isDone ? 'x' : ' '}] ${words}`
      const isFunded = isPastFunding(deal.status)
      return [
        `Deal ${deal.id}, ${plain(deal.property_address)}`,
        '',
        box(borrowers > 0, `Borrowers linked: ${borrowers}`),
        box(deal.property_value !== null, `Property value: ${dollars(deal.property_value)}`),
        box(deal.loan_program !== null, `Loan program: ${plain(deal.loan_program ?? UNKNOWN)}`),
        box(open_tasks === 0, `Open tasks: ${open_tasks}`),
        box(isFunded || deal.status === 'approved', 'Approved'),
        box(isFunded, `Funded: ${dollars(deal.loan_amount)}`),
      ]
    },
  },
}
