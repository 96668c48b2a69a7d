import {createHmac} from 'node:crypto'
import {z} from 'zod'
import {IDEMPOTENCY_KEY} from '../contract/endpoint.ts'
import {refuse} from './problem-reply.ts'
import {rowCount, type ServiceDatabase} from './service-database.ts'

const KEPT_MS = 86_400_000

/** An answer as it is kept for an Idempotency-Key. */
export type KeptAnswer = Omit<z.output<typeof answerRow>, 'fingerprint'>
const answerRow = z.object({
  fingerprint: z.string(),
  status: rowCount,
  headers: z.string().transform((text) => z.record(z.string(), z.string()).parse(JSON.parse(text))),
  /** JSON text. */
  body: z.string(),
})

/** The value of an Idempotency-Key header. @throws Refusal (400) */
export function parseIdempotencyKey(header: string | string[] | undefined): string | undefined {
  if (header === undefined) return undefined
  if (typeof header === 'string' && IDEMPOTENCY_KEY.test(header)) return header
  throw refuse('invalid_idempotency_key')
}

/** Digests a request; keyed, because four digits of a national id could be guessed from a plain digest. */
export function digestRequest(
  request: {method: string; path: string; body: unknown},
  secret: Buffer,
): string {
  const text = JSON.stringify([request.method, request.path, request.body ?? null])
  return createHmac('sha256', secret).update(text).digest('base64url')
}

/**
 * Runs `work` once for an Idempotency-Key: within its transaction the answer is kept for 24 hours and given again.
 *
 * @param keyed the owner of the key, for keys of different callers never meet, and the digest of the request
 * @throws Refusal (422) when the key came with another request before
 */
export function answerOnce(
  keyed: {owner: string; key: string; fingerprint: string},
  work: () => KeptAnswer,
  {database, now}: {database: ServiceDatabase; now: number},
): KeptAnswer {
  const {owner, key, fingerprint} = keyed
  database.run('delete from idempotent_answer where created_at < ?', now - KEPT_MS)
  const known = database.get(
    answerRow,
    'select * from idempotent_answer where owner = ? and key = ?',
    owner,
    key,
  )
  if (known) {
    if (known.fingerprint !== fingerprint) throw refuse('idempotency_key_reused')
    return {...known, headers: {...known.headers, 'Idempotency-Replayed': 'true'}}
  }
  const answer = work()
  const {status, headers, body} = answer
  database.insert('idempotent_answer', {
    owner,
    key,
    fingerprint,
    status,
    headers: JSON.stringify(headers),
    body,
    created_at: now,
  })
  return answer
}
