import type {SourceDescription} from '../contract/description.ts'
import {codeOf, newError, RetryableError} from '../core/errors.ts'
import {isObject, parseJson} from '../core/json.ts'
import {openAgent} from '../core/outgoing.ts'
import type {World} from '../core/types.ts'

/** What a request carries so that the source knows who asks. */
export interface Credential {
  headers: Record<string, string>
  query: Record<string, string>
}

type Auth = SourceDescription['auth']

/** A token is renewed this long before it expires. */
const RENEWED_MS = 30_000

/**
 * Creates the credentials of one run: the first key until the source refuses it, then the next one; for OAuth 2 a token that a
 * key is exchanged for.
 *
 * @param keys the API keys in the order they are tried
 */
export function createCredentials(
  auth: Auth,
  {keys, timeoutMs}: {keys: readonly string[]; timeoutMs: number},
  world: Pick<World, 'realClock' | 'signal'>,
) {
  let turn = 0
  let current: {credential: Credential; until: number} | undefined
  let making: Promise<Credential> | undefined

  async function make(): Promise<Credential> {
    const key = keys[turn]
    let until = Number.POSITIVE_INFINITY
    let credential: Credential = {headers: {}, query: {}}
    if (key !== undefined && auth.by !== 'oauth2') credential = present(auth, key)
    else if (key !== undefined && auth.by === 'oauth2') {
      try {
        const {token, seconds} = await fetchToken(auth, {secret: key, timeoutMs, signal: world.signal})
        credential = present({by: 'bearer'}, token)
        until = world.realClock.now() + seconds * 1000 - Math.min(RENEWED_MS, seconds * 500)
      } catch (error) {
        if (codeOf(error) !== 'SOURCE_UNAUTHORIZED' || turn + 1 >= keys.length) throw error
        turn += 1
        return make()
      }
    }
    current = {credential, until}
    return credential
  }

  return {
    /**
     * The credential to send now: the same object until it changes.
     *
     * @throws AuthError `SOURCE_UNAUTHORIZED` if no token is given for the key; RetryableError
     */
    async get(): Promise<Credential> {
      if (current && world.realClock.now() < current.until) return current.credential
      making ??= make().finally(() => {
        making = undefined
      })
      return making
    },
    /** After a 401: whether there is another credential than the refused one. */
    renew(refused: Credential): boolean {
      if (current?.credential !== refused) return true
      if (auth.by !== 'oauth2' && turn + 1 >= keys.length) return false
      if (auth.by !== 'oauth2') turn += 1
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

const LONGEST_ANSWER = 1_000_000

/** A token that states no end is renewed this often. */
const UNSAID_SECONDS = 300

/** Exchanges a secret for a token (RFC 6749, 4.4). @throws AuthError `SOURCE_UNAUTHORIZED`; RetryableError */
async function fetchToken(
  {tokenUrl, clientId, scope}: Extract<Auth, {by: 'oauth2'}>,
  {secret, timeoutMs, signal}: {secret: string; timeoutMs: number; signal: AbortSignal},
): Promise<{token: string; seconds: number}> {
  const {origin, host, pathname, search} = new URL(tokenUrl)
  await using agent = openAgent(tokenUrl, {timeoutMs, maxResponseSize: LONGEST_ANSWER})
  const form = new URLSearchParams({grant_type: 'client_credentials', ...(scope !== undefined && {scope})})
  const headers = {
    authorization: basic(encodeURIComponent(clientId), encodeURIComponent(secret)),
    'content-type': 'application/x-www-form-urlencoded',
    accept: 'application/json',
  }
  const path = `${pathname}${search}`
  const request = {origin, path, method: 'POST' as const, headers, body: `${form}`, signal}
  const {statusCode, text} = await agent.request(request).then(
    async ({statusCode, body}) => ({statusCode, text: await body.text()}),
    (cause: unknown) => {
      if (signal.aborted) throw cause
      throw new RetryableError({code: 'SOURCE_UNREACHABLE', problem: codeOf(cause), cause})
    },
  )
  const answer = parseJson(text)
  const token = isObject(answer) ? answer.access_token : undefined
  const seconds = isObject(answer) ? Number(answer.expires_in ?? UNSAID_SECONDS) : Number.NaN
  if (statusCode === 200 && typeof token === 'string' && /^[\x21-\x7e]+$/.test(token) && seconds >= 0)
    return {token, seconds}
  if (statusCode === 429 || statusCode >= 500)
    throw new RetryableError({code: 'SOURCE_FAILING', problem: `status ${statusCode} of the token's server`})
  throw newError(
    'SOURCE_UNAUTHORIZED',
    `No token from '${host}', status ${statusCode}: expected one for client '${clientId}' of source.json.`,
  )
}
