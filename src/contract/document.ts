import {z} from 'zod'
import {instantField, textField, wordField} from './fields.ts'

/** A file that was received and lies on the disk, complete, under a temporary name. */
export interface ReceivedFile {
  path: string
  /** As it was sent; for people only, never a path. */
  fileName: string | null
  bytes: number
  sha256: string
  /** Read from the file's content, not from what the sender says. */
  mediaType: string
}

/** The parts of `POST /deals/{id}/documents`. */
export interface NewDocument {
  file: ReceivedFile
  category: string
  name: string
}

/** A document of a deal. */
export interface DealDocument {
  id: string
  deal_id: string
  category: string
  name: string
  file_name: string | null
  media_type: string
  bytes: number
  sha256: string
  created_at: string
}

/** What documents can be made from. */
export const TEMPLATES = ['term_sheet', 'closing_checklist'] as const

/** A body of `POST /deals/{id}/document-generations`. */
export interface NewDocumentGeneration {
  template: (typeof TEMPLATES)[number]
}

/** A document being made; `document_id` is set when it is `completed`. */
export interface DocumentGeneration extends NewDocumentGeneration {
  id: string
  deal_id: string
  status: 'queued' | 'completed' | 'failed'
  document_id: string | null
  created_at: string
  finished_at: string | null
}

const isReceivedFile = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && 'sha256' in value

/** The schema of {@link NewDocument}, after its file has been received. */
export const newDocumentSchema: z.ZodType<NewDocument> = z
  .strictObject({
    file: z
      .custom<ReceivedFile>(isReceivedFile, 'expected a file')
      .meta({type: 'string', minLength: 1, contentMediaType: 'application/octet-stream'}),
    category: wordField.meta({examples: ['appraisal']}),
    name: textField(200),
  })
  .meta({id: 'NewDocument'})

/** The schema of {@link DealDocument}. */
export const documentSchema: z.ZodType<DealDocument> = z
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

/** The schema of {@link NewDocumentGeneration}. */
export const newDocumentGenerationSchema: z.ZodType<NewDocumentGeneration> = z
  .strictObject({template: z.enum(TEMPLATES)})
  .meta({id: 'NewDocumentGeneration'})

/** The schema of {@link DocumentGeneration}. */
export const documentGenerationSchema: z.ZodType<DocumentGeneration> = z
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
