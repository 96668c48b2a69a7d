import type {FastifyRequest} from 'fastify'
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
import type {StoredDeal} from './deal-store.ts'
import {createDealListing, requireDeal} from './deals.ts'
import type {FileStore} from './files.ts'
import {Refusal, refuse, requireFound} from './refusal.ts'
import {type Handlers, PREFIX, type ServiceWorld} from './requests.ts'
import {createId, rowCount, rowInstant, type ServiceDatabase} from './service-database.ts'

const documentRow = documentSchema.extend({
  bytes: rowCount,
  created_at: rowInstant,
})

function requireDocument(database: ServiceDatabase, dealId: string, id: string): DealDocument {
  const sql = 'select * from document where id = ? and deal_id = ?'
  return requireFound(database.get(documentRow, sql, id, dealId), 'document_not_found')
}

/** Attaches a received file to a deal, within the current transaction. */
function attachDocument(
  {dealId, category, name, file}: {dealId: string; category: string; name: string; file: ReceivedFile},
  {database, files, clock, emit}: ServiceWorld,
): DealDocument {
  const id = createId('doc')
  files.keep(file, id)
  database.insert('document', {
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
  emit({type: 'document.uploaded', data: {id, deal_id: dealId, category}})
  return requireDocument(database, dealId, id)
}

/** `attachment` with a name in any script (RFC 6266, RFC 8187). */
function formatDisposition({file_name, name}: DealDocument): string {
  const encoded = encodeURIComponent(file_name ?? name).replace(
    /['()*]/g,
    (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`,
  )
  return `attachment; filename*=UTF-8''${encoded}`
}

/** Creates the operations on documents. */
export function createDocumentHandlers(world: ServiceWorld) {
  const {store, database, files, documentsPerDeal} = world
  return {
    uploadDocument: ({id: dealId, body}) => {
      requireDeal(store, dealId)
      const count = database.get(
        z.object({documents: rowCount}),
        'select count(*) as documents from document where deal_id = ?',
        dealId,
      )
      if ((count?.documents ?? 0) >= documentsPerDeal)
        throw refuse('too_many_documents', {
          detail: `A deal has at most ${documentsPerDeal} documents.`,
        })
      const document = attachDocument({...body, dealId}, world)
      const location = `${PREFIX}/deals/${dealId}/documents/${document.id}`
      return {body: {data: document}, headers: {Location: location}}
    },
    listDocuments: createDealListing(world, 'document', documentRow),
    getDocument: ({id, childId}) => {
      requireDeal(store, id)
      return {body: {data: requireDocument(database, id, childId)}}
    },
    downloadDocument: ({id, childId}) => {
      requireDeal(store, id)
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
const COUNT_LINKED = `select
  (select count(*) from borrower where deal_id = ?1) as borrowers,
  (select count(*) from task where deal_id = ?1 and status = 'open') as open_tasks`

/** Creates the operations on document generations; `onRequested` is called once one is committed. */
export function createGenerationHandlers(world: ServiceWorld, onRequested: () => void) {
  const {store, database, clock} = world
  const requireGeneration = (dealId: string, id: string): DocumentGeneration =>
    requireFound(database.get(generationRow, SELECT_ONE, id, dealId), 'document_generation_not_found')
  return {
    requestDocumentGeneration: ({id: dealId, body}) => {
      requireDeal(store, dealId)
      const id = createId('gen')
      database.insert('document_generation', {
        id,
        deal_id: dealId,
        template: body.template,
        status: 'queued',
        created_at: clock.now(),
      })
      database.afterCommit(onRequested)
      const location = `${PREFIX}/deals/${dealId}/document-generations/${id}`
      return {body: {data: requireGeneration(dealId, id)}, headers: {Location: location}}
    },
    listDocumentGenerations: createDealListing(world, 'document_generation', generationRow),
    getDocumentGeneration: ({id, childId}) => {
      requireDeal(store, id)
      return {body: {data: requireGeneration(id, childId)}}
    },
  } satisfies Partial<Handlers>
}

/** Makes the document of one generation: file, row and event are stored together or not at all. */
function generateOne(
  generation: DocumentGeneration,
  world: ServiceWorld,
  onError: (error: unknown) => void,
): void {
  const {id, deal_id: dealId, template} = generation
  const {database, store, files, clock} = world
  const finish = (status: string, document_id: string | null): void =>
    database.update('document_generation', id, {status, document_id, finished_at: clock.now()})
  const linked = database.get(z.object({borrowers: rowCount, open_tasks: rowCount}), COUNT_LINKED, dealId)
  const counts = {borrowers: linked?.borrowers ?? 0, openTasks: linked?.open_tasks ?? 0}
  const {content, ...document} = renderTemplate(template, requireDeal(store, dealId), counts)
  const file = files.write(content)
  try {
    database.transaction(() => finish('completed', attachDocument({...document, dealId, file}, world).id))
  } catch (error) {
    finish('failed', null)
    onError(error)
  } finally {
    files.discard(file)
  }
}

/** Makes documents in the background; the next service continues after a kill. */
export function createGenerator(world: ServiceWorld, onError: (error: unknown) => void) {
  let scheduled: NodeJS.Immediate | undefined
  const wake = (): void => {
    scheduled ??= setImmediate(() => {
      scheduled = undefined
      const next = world.database.get(generationRow, SELECT_QUEUED)
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

function renderTermSheet(deal: StoredDeal): string {
  return [
    '# Term sheet',
    '',
    `| | |`,
    `|---|---|`,
    `| Deal | ${deal.id} |`,
    `| Property | ${plain(deal.propertyAddress)} |`,
    `| Loan amount | ${dollars(deal.loanAmountCents)} |`,
    `| Property value | ${dollars(deal.propertyValueCents)} |`,
    `| Loan to value | ${formatLtv(deal)} |`,
    `| Loan program | ${plain(deal.loanProgram ?? 'to be determined')} |`,
    `| Status | ${deal.status} |`,
    '',
    'For discussion only: no commitment to lend.',
    '',
  ].join('\n')
}

function renderClosingChecklist(deal: StoredDeal, counts: {borrowers: number; openTasks: number}): string {
  const box = (isDone: boolean, words: string): string => `- [${isDone ? 'x' : ' '}] ${words}`
  const isFunded = deal.status === 'funded' || deal.status === 'paid_off'
  return [
    '# Closing checklist',
    '',
    `Deal ${deal.id}, ${plain(deal.propertyAddress)}`,
    '',
    box(counts.borrowers > 0, `Borrowers linked: ${counts.borrowers}`),
    box(deal.propertyValueCents !== null, `Property value: ${dollars(deal.propertyValueCents)}`),
    box(deal.loanProgram !== null, `Loan program: ${plain(deal.loanProgram ?? 'to be determined')}`),
    box(counts.openTasks === 0, `Open tasks: ${counts.openTasks}`),
    box(isFunded || deal.status === 'approved', 'Approved'),
    box(isFunded, `Funded: ${dollars(deal.loanAmountCents)}`),
    '',
  ].join('\n')
}

/** Renders a document of a deal in Markdown. */
function renderTemplate(
  template: NewDocumentGeneration['template'],
  deal: StoredDeal,
  counts: {borrowers: number; openTasks: number},
) {
  if (template === 'term_sheet')
    return {category: template, name: 'Term sheet', content: renderTermSheet(deal)}
  return {category: template, name: 'Closing checklist', content: renderClosingChecklist(deal, counts)}
}
