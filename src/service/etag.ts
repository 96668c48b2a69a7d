import {hash} from 'node:crypto'
import {refuse} from './problem-reply.ts'

/** The strong entity tag of an answer: equal only where the whole body is. */
export function etagOf(body: unknown): string {
  return `"${hash('sha256', JSON.stringify(body), 'base64url').slice(0, 22)}"`
}

/**
 * Holds a change against `If-Match` (RFC 9110, 13.1.1): `*`, or a list of strong tags.
 *
 * @throws Refusal (412) when the record is no longer the one the caller saw
 */
export function checkIfMatch(ifMatch: string | undefined, body: unknown): void {
  if (ifMatch === undefined || ifMatch.trim() === '*') return
  const tags = ifMatch.split(',').map((tag) => tag.trim())
  if (!tags.includes(etagOf(body))) throw refuse('precondition_failed')
}
