import {z} from 'zod'
import {dealStream} from './deal.ts'
import {type Endpoint, endpointsOf} from './endpoint.ts'
import {
  childIdOf,
  idField,
  instantField,
  instantOrDate,
  type Stream,
  sourceText,
  textField,
  wordField,
} from './stream.ts'

/** A received file, complete on the disk under a temporary name. */
export interface ReceivedFile {
  path: string
  /** As sent; for people only, never used as a path. */
  fileName: string | null
  bytes: number
  sha256: string
  /** Read from the file's content; the sender's claim is ignored. */
  mediaType: string
}

/** Templates that documents can be made from. */
const TEMPLATES = ['term_sheet', 'closing_checklist'] as const

const isReceivedFile = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && 'sha256' in value

/** The parts of `POST /deals/{id}/documents`, after the file has been received. */
const newDocumentSchema = z
  .strictObject({
    file: z
      .custom<ReceivedFile>(isReceivedFile, 'expected a file')
      .meta({type: 'string', minLength: 1, contentMediaType: 'application/octet-stream'}),
    category: wordField.meta({examples: ['appraisal']}),
    name: textField(200),
  })
  .meta({id: 'NewDocument'})

/** A document of a deal. */
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

/** A body of `POST /deals/{id}/document-generations`. */
export type NewDocumentGeneration = z.output<typeof newDocumentGenerationSchema>
const newDocumentGenerationSchema = z
  .strictObject({template: z.enum(TEMPLATES)})
  .meta({id: 'NewDocumentGeneration'})

/** A document being made; `document_id` is set when it is `completed`. */
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

const kept = z.object({
  id: idField,
  deal_id: idField,
  category: sourceText.nullish(),
  created_at: instantOrDate.nullish(),
})

const dropped = ['name', 'file_name', 'media_type', 'bytes', 'sha256']

/** The stream of documents attached to deals; their names are not kept, since they often name people. */
export const documentStream: Stream = {
  name: 'document',
  plural: 'documents',
  parent: {stream: dealStream, column: 'deal_id'},
  idColumn: 'attachment_id',
  idField: 'id',
  listPath: '/deals/{id}/documents',
  columns: [
    {name: 'deal_id', type: 'VARCHAR'},
    {name: 'document_id', type: 'VARCHAR'},
    {name: 'category', type: 'VARCHAR'},
    {name: 'created_at', type: 'TIMESTAMP', precisionColumn: 'created_at_precision'},
    {name: 'created_at_precision', type: 'VARCHAR'},
  ],
  wireFields: [...Object.keys(kept.shape), ...dropped],
  privacy: {hashed: [], dropped},
  vocabularies: [{column: 'category', known: null}],
  schema: kept.transform(({id, deal_id, category, created_at}) => ({
    attachment_id: childIdOf(deal_id, id),
    deal_id,
    document_id: id,
    category: category ?? null,
    created_at: created_at?.micros ?? null,
    created_at_precision: created_at?.precision ?? null,
  })),
}

const document = endpointsOf('Documents')
const generation = endpointsOf('Document generation')

/** The endpoints of documents, uploaded or made from templates. */
export const documentEndpoints = {
  uploadDocument: {
    ...document.post,
    path: '/deals/{id}/documents',
    summary: 'Upload a document to a deal',
    body: newDocumentSchema,
    isMultipart: true,
    record: documentSchema,
    problems: ['too_many_documents', 'unsupported_file_type'],
  },
  listDocuments: {
    ...document.list,
    path: '/deals/{id}/documents',
    summary: 'List the documents of a deal',
    record: documentSchema,
  },
  getDocument: {
    ...document.get,
    path: '/deals/{id}/documents/{document_id}',
    summary: 'Retrieve the metadata of a document',
    record: documentSchema,
  },
  downloadDocument: {
    ...document.get,
    path: '/deals/{id}/documents/{document_id}/content',
    summary: "Download a document's file",
    record: null,
  },
  requestDocumentGeneration: {
    ...generation.post,
    path: '/deals/{id}/document-generations',
    summary: 'Request a document made from a template; it is attached to the deal when ready',
    body: newDocumentGenerationSchema,
    status: 202,
    record: documentGenerationSchema,
  },
  listDocumentGenerations: {
    ...generation.list,
    path: '/deals/{id}/document-generations',
    summary: 'List the document generations of a deal',
    record: documentGenerationSchema,
  },
  getDocumentGeneration: {
    ...generation.get,
    path: '/deals/{id}/document-generations/{generation_id}',
    summary: 'Retrieve a document generation',
    record: documentGenerationSchema,
  },
} satisfies Record<string, Endpoint>
