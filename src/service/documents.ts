import {z} from 'zod'
import {type DealDocument, documentSchema, type ReceivedFile} from '../contract/document.ts'
import {readTablePage} from './cursor.ts'
import {requireDeal} from './deals.ts'
import {type Handlers, PREFIX, type ServiceWorld} from './handlers.ts'
import {refuse, requireFound} from './problem-reply.ts'
import {createId, rowCount, rowInstant, type ServiceDatabase} from './service-database.ts'

const row = documentSchema.extend({
  bytes: rowCount,
  created_at: rowInstant,
})

function requireDocument(database: ServiceDatabase, dealId: string, id: string): DealDocument {
  const sql = 'select * from document where id = ? and deal_id = ?'
  return requireFound(database.get(row, sql, id, dealId), 'document_not_found')
}

/** Attaches a file that lies on the disk to a deal, within the transaction under way. */
export function attachDocument(
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

/** `attachment` with a name of any letters (RFC 6266, RFC 8187). */
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
    listDocuments: ({id, query}) => {
      requireDeal(store, id)
      return {body: readTablePage(query, {name: 'document', row, parent: {deal_id: id}}, database)}
    },
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
