import type {FastifyRequest} from 'fastify'
import type {ReceivedFile} from '../contract/document.ts'
import {codeOf} from '../errors.ts'
import type {FileStore} from './files.ts'
import {Refusal, refuse} from './problem-reply.ts'

/** A file name as people may see it: no folders, no control characters, none that turn the reading direction. */
function cleanFileName(name: string | undefined): string | null {
  const cleaned = (name ?? '')
    .replace(/^.*[\\/]/, '')
    .replace(/[\p{Cc}\p{Cs}\p{Bidi_Control}]/gu, '')
    .slice(0, 255)
  return cleaned === '' ? null : cleaned
}

/** Refusals and faults of the disk go on as they are; what is left is what the parser says of the body. */
function isOurFault(error: unknown): boolean {
  if (!(error instanceof Error) || error instanceof Refusal || codeOf(error).startsWith('FST_')) return true
  return 'syscall' in error && !['ECONNRESET', 'EPIPE'].includes(codeOf(error))
}

/**
 * Receives a multipart body: the part `file` goes to the disk as it comes, the others are text fields.
 *
 * @throws Refusal when a part is too large, of a type that is not kept, or not known; nothing stays behind
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
