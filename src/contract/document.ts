import {z} from 'zod'
import {isObject} from '../core/json.ts'
import {createChildStream} from './deal.ts'
import {endpointsOf} from './endpoint.ts'
import {pageQuerySchema} from './list.ts'
import {instantField, type Stream, sourceText, textField, wordField} from './stream.ts'

export interface ReceivedFile {
  content: Uint8Array
  /** Only for display, never used as a path. */
  fileName: string | null
  sha256: string
  /** Detected from the content; the sender's claim is ignored. */
  mediaType: string
}

const TEMPLATES = ['term_sheet', 'closing_checklist'] as const

const newDocumentSchema = z
  .strictObject({
    file: z
      .custom<ReceivedFile>((value) => isObject(value) && 'sha256' in value, 'expected a file')
      .meta({type: 'string', minLength: 1, contentMediaType: 'application/octet-stream'}),
    category: wordField.meta({examples: ['appraisal']}),
    name: textField(200),
  })
  .meta({id: 'NewDocument'})

export type DealDocument = z.output<typeof documentSchema>
export const documentSchema = z
  .object({
    id: z.string(),
    deal_id: z.string(),
    category: z.string(),
    name: z.string(),
    file_name: z.string().nullable(),
    media_type: z.string(),
    bytes: z.number().int(),
    sha256: z.string(),
    created_at: instantField,
  })
  .meta({id: 'Document'})

export type NewDocumentGeneration = z.output<typeof newDocumentGenerationSchema>
const newDocumentGenerationSchema = z
  .strictObject({template: z.enum(TEMPLATES)})
  .meta({id: 'NewDocumentGeneration'})

/** `document_id` is set once it is `completed`. */
export type DocumentGeneration = z.output<typeof documentGenerationSchema>
export const documentGenerationSchema = z
  .object({
    id: z.string(),
    deal_id: z.string(),
    template: z.enum(TEMPLATES),
    status: z.enum(['queued', 'completed', 'failed']),
    document_id: z.string().nullable(),
    created_at: instantField,
    finished_at: instantField.nullable(),
  })
  .meta({id: 'DocumentGeneration'})

/** Names of documents are not kept, since they often name people. */
export const documentStream: Stream = createChildStream({
  name: 'document',
  idColumn: 'attachment_id',
  text: {field: 'category', column: 'category', schema: sourceText},
  privacy: {hashed: [], dropped: ['name', 'file_name', 'media_type', 'bytes', 'sha256']},
  vocabularies: [{column: 'category', known: null}],
})

const document = endpointsOf('Documents')
const documents = '/deals/{id}/documents'
const generation = endpointsOf('Document generation')
const generations = '/deals/{id}/document-generations'

export const documentEndpoints = {
  uploadDocument: document.post(documents, 'Upload a document to a deal', newDocumentSchema, documentSchema, {
    isMultipart: true,
    headers: ['Location'],
    problems: ['too_many_documents', 'unsupported_file_type'],
  }),
  listDocuments: document.list(documents, 'List the documents of a deal', pageQuerySchema, documentSchema),
  getDocument: document.get(
    `${documents}/{document_id}`,
    'Retrieve the metadata of a document',
    documentSchema,
  ),
  downloadDocument: document.file(`${documents}/{document_id}/content`, "Download a document's file"),
  requestDocumentGeneration: generation.post(
    generations,
    'Request a document made from a template; it is attached to the deal when ready',
    newDocumentGenerationSchema,
    documentGenerationSchema,
    {status: 202, headers: ['Location']},
  ),
  listDocumentGenerations: generation.list(
    generations,
    'List the document generations of a deal',
    pageQuerySchema,
    documentGenerationSchema,
  ),
  getDocumentGeneration: generation.get(
    `${generations}/{generation_id}`,
    'Retrieve a document generation',
    documentGenerationSchema,
  ),
}
