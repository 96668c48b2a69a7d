import {z} from 'zod'
import type {SourceDescription} from '../contract/description.ts'
import {codeOf, newError, RetryableError} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import {openAgent, receive} from '../core/outgoing.ts'
import {parseRetryAfter} from '../core/retry.ts'
import type {World} from '../core/types.ts'

export interface Credential {
  headers: Record<string, string>
  query: Record<string, string>
}

type Auth = SourceDescription['auth']
type Made = {credential: Credential; until: number}

/** A token is renewed this long before it expires; a short-lived one at half its life. */
const RENEWED_MS = 30_000

/** The next key is used once the source refuses one; for OAuth 2, there is a token per key. */
export function createCredentials(
  auth: Auth,
  {keys, timeoutMs}: {keys: readonly string[]; timeoutMs: number},
  world: Pick<World, 'realClock' | 'signal'>,
) {
  let turn = 0
  let current: Made | undefined
  let making: Promise<Made> | undefined

  async function make(): Promise<Made> {
    const secret = keys[turn]
    if (secret === undefined) return {credential: {headers: {}, query: {}}, until: Number.POSITIVE_INFINITY}
    if (auth.by !== 'oauth2') return {credential: present(auth, secret), until: Number.POSITIVE_INFINITY}
    const given = await fetchToken(auth, {secret, timeoutMs, isLast: turn + 1 >= keys.length}, world)
    if (given === null) {
      turn += 1
      return make()
    }
    const {token, lifeMs} = given
    const until = world.realClock.now() + lifeMs - Math.min(RENEWED_MS, lifeMs / 2)
    return {credential: present({by: 'bearer'}, token), until}
  }

  return {
    /** The same object until it changes. @throws as {@link fetchToken} does */
    async get(): Promise<Credential> {
      if (current && world.realClock.now() < current.until) return current.credential
      making ??= make().finally(() => {
        making = undefined
      })
      current = await making
      return current.credential
    },
    /** After a 401: whether there is another credential to try. `isFresh`: the refused one was itself made after a 401. */
    renew(refused: Credential, isFresh: boolean): boolean {
      if (current?.credential !== refused) return true
      // The token may have ended early, so try another one.
      if (auth.by !== 'oauth2' || isFresh) {
        if (turn + 1 >= keys.length) return false
        turn += 1
      }
      current = undefined
      return true
    },
  }
}

function present(auth: Exclude<Auth, {by: 'oauth2'}>, key: string): Credential {
  if (auth.by === 'query') return {headers: {}, query: {[auth.name]: key}}
  if (auth.by === 'header') return {headers: {[auth.name.toLowerCase()]: key}, query: {}}
  const authorization = auth.by === 'basic' ? basic(auth.user, key) : `Bearer ${key}`
  return {headers: {authorization}, query: {}}
}

const basic = (user: string, password: string) =>
  `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`

/** A token without an expiry is renewed this often. */
const UNSAID_SECONDS = 300
/** The longest wait that a token server may impose. */
const LONGEST_WAIT_MS = 60_000

const PRINTABLE = /^[\x21-\x7e]+$/
const answerSchema = z.object({
  access_token: z.string().regex(PRINTABLE).optional().catch(undefined),
  expires_in: z.coerce.number().positive().catch(UNSAID_SECONDS),
  error: z.string().catch(''),
})

/** Codes of RFC 6749, 5.2: the server understood and refused. */
const REFUSED = /^(invalid|unauthorized|unsupported)_/

/**
 * Exchanges a secret for a token (RFC 6749, 4.4); null if the server does not know it and another one is left.
 * @throws AuthError `SOURCE_UNAUTHORIZED`; ContractError `SOURCE_REDIRECTED`; RetryableError
 */
async function fetchToken(
  {tokenUrl, clientId, scope}: Extract<Auth, {by: 'oauth2'}>,
  {secret, timeoutMs, isLast}: {secret: string; timeoutMs: number; isLast: boolean},
  {realClock, signal}: Pick<World, 'realClock' | 'signal'>,
): Promise<{token: string; lifeMs: number} | null> {
  const {origin, host, pathname, search} = new URL(tokenUrl)
  const server = `the token server '${host}'`
  await using agent = openAgent(tokenUrl, {timeoutMs, maxResponseSize: 1_000_000})
  const form = new URLSearchParams({grant_type: 'client_credentials', ...(scope !== undefined && {scope})})
  const headers = {
    authorization: basic(encodeURIComponent(clientId), encodeURIComponent(secret)),
    'content-type': 'application/x-www-form-urlencoded',
    accept: 'application/json',
  }
  const request = {origin, path: `${pathname}${search}`, method: 'POST' as const, headers, body: `${form}`}
  const given = await receive(agent, request, {signal, timeoutMs}).catch((cause: unknown) => {
    if (signal.aborted) throw cause
    throw new RetryableError({code: 'SOURCE_UNREACHABLE', problem: `${codeOf(cause)} of ${server}`, cause})
  })
  const {status} = given
  const {access_token, expires_in, error} = answerSchema.parse({...Object(parseJson(given.body.toString()))})
  if (status === 200 && access_token !== undefined) return {token: access_token, lifeMs: expires_in * 1000}
  if (status === 401 || status === 403 || REFUSED.test(error)) {
    if (!isLast && (status === 401 || error === 'invalid_client')) return null
    throw newError(
      'SOURCE_UNAUTHORIZED',
      `Status ${status} from ${server}: expected a token for client '${clientId}' of source.json.`,
    )
  }
  if (status >= 300 && status < 400)
    throw newError('SOURCE_REDIRECTED', `Redirect ${status} from ${server}: expected a token.`, {
      next: 'Set tokenUrl of source.json to the address that answers without a redirect.',
    })
  const waitMs = parseRetryAfter(String(given.headers['retry-after'] ?? ''), realClock.now()) ?? 0
  const problem = `status ${status} without a token from ${server}`
  throw new RetryableError({code: 'SOURCE_FAILING', problem}, Math.min(waitMs, LONGEST_WAIT_MS))
}
