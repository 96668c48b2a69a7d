import {z} from 'zod'

/** An error body as in RFC 9457, `application/problem+json`. */
export type Problem = z.output<typeof problemSchema>
export const problemSchema = z
  .object({
    type: z.string(),
    title: z.string(),
    status: z.number().int(),
    detail: z.string().optional(),
    code: z.string().meta({description: 'Stable, for programs.'}),
    errors: z.array(z.object({path: z.string(), message: z.string()})).optional(),
  })
  .meta({id: 'Problem', description: 'Problem details, RFC 9457.'})

export const PROBLEMS = {
  malformed_json: {status: 400, meaning: 'The body is not JSON in UTF-8, or repeats a name.'},
  malformed_body: {status: 400, meaning: 'The body ended early, or its parts cannot be read.'},
  malformed_url: {status: 400, meaning: 'The URL cannot be decoded.'},
  bad_request: {status: 400, meaning: 'The request is not valid HTTP, or its URL and headers are too long.'},
  invalid_body: {status: 400, meaning: 'Fields are missing, unknown or wrong; `errors` names each.'},
  invalid_parameter: {status: 400, meaning: 'Query parameters are unknown, repeated or wrong.'},
  invalid_cursor: {status: 400, meaning: 'The cursor was altered, or belongs to another list.'},
  invalid_idempotency_key: {status: 400, meaning: 'Idempotency-Key: expected 1 to 255 printable characters.'},
  unauthorized: {status: 401, meaning: 'No API key was sent.'},
  invalid_token: {status: 401, meaning: 'The API key is unknown or revoked.'},
  insufficient_scope: {status: 403, meaning: 'The API key lacks the scope that the request needs.'},
  not_found: {status: 404, meaning: 'There is no such endpoint.'},
  deal_not_found: {status: 404, meaning: 'There is no such deal.'},
  document_not_found: {status: 404, meaning: 'The deal has no such document.'},
  task_not_found: {status: 404, meaning: 'There is no such task.'},
  document_generation_not_found: {status: 404, meaning: 'The deal has no such document generation.'},
  webhook_endpoint_not_found: {status: 404, meaning: 'There is no such webhook endpoint.'},
  webhook_delivery_not_found: {status: 404, meaning: 'The webhook endpoint has no such delivery.'},
  method_not_allowed: {status: 405, meaning: 'The path exists, but not with this method; see Allow.'},
  invalid_transition: {status: 409, meaning: 'The deal cannot go from its status to that one.'},
  incomplete_deal: {status: 409, meaning: 'The deal lacks fields for that status; `errors` names them.'},
  deal_funded: {status: 409, meaning: 'A deal that was funded is on the books and cannot be deleted.'},
  too_many_documents: {status: 409, meaning: 'The deal already has the most documents allowed.'},
  webhook_endpoint_disabled: {status: 409, meaning: 'The webhook endpoint is disabled: enable it first.'},
  precondition_failed: {status: 412, meaning: 'The deal has changed since the ETag in If-Match.'},
  body_too_large: {status: 413, meaning: 'The body or the file is larger than allowed.'},
  url_too_long: {status: 414, meaning: 'A part of the path is longer than any id.'},
  unsupported_media_type: {status: 415, meaning: 'The endpoint does not accept this Content-Type.'},
  unsupported_file_type: {status: 415, meaning: 'Not PDF, JPEG, PNG, TIFF, HEIC, Word, Excel or plain text.'},
  idempotency_key_reused: {status: 422, meaning: 'The Idempotency-Key was used for another request.'},
  rate_limited: {status: 429, meaning: 'Too many requests; see Retry-After.'},
  internal: {status: 500, meaning: 'The service failed; the request may be sent again.'},
} satisfies Record<string, {status: number; meaning: string}>

export type ProblemCode = keyof typeof PROBLEMS
