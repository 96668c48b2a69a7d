import {hash, randomBytes} from 'node:crypto'
import type {FastifyInstance, FastifyRequest} from 'fastify'
import {z} from 'zod'
import {noBodySchema} from '../contract/endpoint.ts'
import {ENDPOINTS} from '../contract/endpoints.ts'
import {type Clock, realClock} from '../core/clock.ts'
import {newError} from '../core/errors.ts'
import {type Refusal, refuse} from './refusal.ts'
import {PREFIX} from './requests.ts'
import {rowOf, type ServiceDatabase} from './service-database.ts'

/** Checks each request in this order: its key, its rate, the key's scope, path and method, content type. */
export function addAccessHooks(
  app: FastifyInstance,
  options: {apiKeys: readonly string[]; database: ServiceDatabase; rateLimit?: RateLimit},
): void {
  const checkKey = createKeyCheck(options.apiKeys, options.database)
  const limitRate = options.rateLimit && createRateLimiter(options.rateLimit, realClock)
  app.decorateRequest('keyOwner', '')
  app.addHook('onRequest', (request, reply, done) => {
    const {url = PREFIX, config} = request.routeOptions
    // The API description holds no data.
    if (!url.startsWith(PREFIX)) return done()
    const caller = checkKey(request.headers.authorization)
    request.keyOwner = caller.owner
    if (limitRate) reply.headers(limitRate(caller.owner))
    if (config?.endpoint) checkScope(caller, config.endpoint.method === 'GET' ? 'read' : 'write')
    // Before the body is read: its faults do not matter if no endpoint takes it.
    if (request.is404) throw refuseUnknown(request.url)
    checkContentType(request)
    done()
  })
}

/** A token bucket for each API key: `burst` requests at once, `perSecond` refilled. */
export interface RateLimit {
  perSecond: number
  burst: number
}

/**
 * Takes one token from a key's bucket and returns the headers of draft-ietf-httpapi-ratelimit-headers: `t` is the seconds until
 * the next token if `r=0`, otherwise until the bucket is full. @throws Refusal (429), which costs no token
 */
export function createRateLimiter(
  {perSecond, burst}: RateLimit,
  clock: Clock,
): (key: string) => Record<string, string> {
  const buckets = new Map<string, {tokens: number; filledAt: number}>()
  const policy = `"default";q=${burst};w=${Math.max(1, Math.ceil(burst / perSecond))}`
  return (key) => {
    const now = clock.now()
    const before = buckets.get(key) ?? {tokens: burst, filledAt: now}
    const elapsedMs = Math.max(0, now - before.filledAt)
    const filled = Math.min(burst, before.tokens + (elapsedMs / 1000) * perSecond)
    const isServed = filled >= 1
    const tokens = isServed ? filled - 1 : filled
    buckets.set(key, {tokens, filledAt: now})
    const remaining = Math.floor(tokens)
    const wait = Math.max(1, Math.ceil(((remaining === 0 ? 1 : burst) - tokens) / perSecond))
    const headers = {'RateLimit-Policy': policy, RateLimit: `"default";r=${remaining};t=${wait}`}
    if (isServed) return headers
    const detail = `More than ${perSecond} requests per second. Try again in ${wait} s.`
    throw refuse('rate_limited', {detail, headers: {...headers, 'Retry-After': String(wait)}})
  }
}

/** `read` allows GET, `write` the other methods; neither includes the other. */
export const SCOPES = ['read', 'write'] as const

export type Scope = (typeof SCOPES)[number]

const KEY_FORM = /^sk_(?:live|test)_[A-Za-z0-9_-]+$/

const scopesOfText = z
  .string()
  .transform((text) => text.split(','))
  .pipe(z.array(z.enum(SCOPES)))

const keyRow = z.object({
  id: z.string(),
  name: z.string(),
  /** The visible part: `sk_live_` or `sk_test_` and the id. */
  prefix: z.string(),
  scopes: scopesOfText,
  created_at: z.string(),
  revoked_at: z.string().nullable(),
})

/** `owner` identifies the rate-limit bucket and the idempotency keys. */
type Caller = z.output<typeof callerRow>
const callerRow = z.object({owner: z.string(), scopes: scopesOfText})

const digestOf = (text: string): string => hash('sha256', text)

/** Returns the key once. Only its SHA-256 is stored: 192 random bits need no slow hash. `now` is in ms. */
export function createApiKey(
  database: ServiceDatabase,
  options: {kind: 'live' | 'test'; name: string; scopes: readonly Scope[]; now: number},
): {id: string; key: string} {
  const id = randomBytes(6).toString('hex')
  const prefix = `sk_${options.kind}_${id}`
  const key = `${prefix}${randomBytes(24).toString('hex')}`
  database.insert('api_key', {
    id,
    name: options.name,
    prefix,
    digest: Buffer.from(digestOf(key), 'hex'),
    scopes: [...new Set(options.scopes)].join(','),
    created_at: options.now,
  })
  return {id, key}
}

export function listApiKeys(database: ServiceDatabase): z.output<typeof keyRow>[] {
  return database.all(rowOf(keyRow), 'select * from api_key order by created_at, id')
}

/** False if there is no such key or it was revoked before. */
export function revokeApiKey(database: ServiceDatabase, id: string, now: number): boolean {
  return (
    database.run('update api_key set revoked_at = ? where id = ? and revoked_at is null', [now, id]).changes >
    0
  )
}

function refuseKey(code: 'unauthorized' | 'invalid_token', challenge: string): Refusal {
  const detail = 'Send an API key: Authorization: Bearer sk_live_… or sk_test_….'
  return refuse(code, {detail, headers: {'WWW-Authenticate': challenge}})
}

/**
 * `apiKeys` have every scope. Keys are looked up by their digest, which nobody can choose, so timing reveals nothing about a key.
 * @throws ConfigError if a key has another form; the check itself throws a Refusal (401)
 */
function createKeyCheck(
  apiKeys: readonly string[],
  database: ServiceDatabase,
): (authorization: string | undefined) => Caller {
  if (apiKeys.length === 0 || !apiKeys.every((key) => KEY_FORM.test(key)))
    throw newError(
      'USAGE',
      'An API key of the service is missing or has the wrong form: expected sk_live_… or sk_test_….',
      {next: 'Give at least one key that begins with sk_test_.'},
    )
  const given = new Set(apiKeys.map(digestOf))
  const stored = 'select id as owner, scopes from api_key where digest = ? and revoked_at is null'
  return (authorization) => {
    const token = /^Bearer +(.*)$/i.exec(authorization ?? '')?.[1]
    if (token === undefined) throw refuseKey('unauthorized', 'Bearer realm="deals"')
    const owner = digestOf(token)
    const caller = given.has(owner)
      ? {owner, scopes: [...SCOPES]}
      : database.first(callerRow, stored, [Buffer.from(owner, 'hex')])
    if (!caller) throw refuseKey('invalid_token', 'Bearer realm="deals", error="invalid_token"')
    return caller
  }
}

/** @throws Refusal (403) by RFC 6750 */
function checkScope(caller: Caller, scope: Scope): void {
  if (caller.scopes.includes(scope)) return
  throw refuse('insufficient_scope', {
    detail: `The request needs the scope ${scope}.`,
    headers: {'WWW-Authenticate': `Bearer realm="deals", error="insufficient_scope", scope="${scope}"`},
  })
}

function checkContentType(request: FastifyRequest): void {
  const {method, headers, routeOptions} = request
  if (method === 'GET' || method === 'HEAD') return
  if (headers['transfer-encoding'] === undefined && Number(headers['content-length'] ?? 0) === 0) {
    // Without a body, the framework would still refuse a content type that it has no parser for.
    delete headers['content-type']
    return
  }
  const {endpoint} = routeOptions.config
  const expected = endpoint?.isMultipart ? 'multipart/form-data' : 'application/json'
  // A body of unknown length may turn out to be empty, so it needs no type.
  if (endpoint?.body === noBodySchema) headers['content-type'] ??= expected
  const [sent = '', ...parameters] = (headers['content-type'] ?? '').toLowerCase().split(';')
  const isOther = parameters.some((text) => /^\s*charset\s*=(?!\s*"?utf-?8"?\s*$)/.test(text))
  const {'content-encoding': coding = 'identity'} = headers
  if (sent.trim() === expected && !isOther && coding === 'identity') return
  throw refuse('unsupported_media_type', {
    detail: `Send the body as Content-Type: ${expected}, in UTF-8, not compressed.`,
  })
}

const PATHS = Object.values(ENDPOINTS).map(({method, path}) => ({
  method,
  pattern: new RegExp(`^${PREFIX}${path.replace(/\{\w+\}/g, '[^/]+')}(?:\\?|$)`),
}))

/** Returns 405 with `Allow` if the path exists, else 404. */
function refuseUnknown(url: string): Error {
  const allowed = PATHS.filter(({pattern}) => pattern.test(url)).flatMap(({method}) =>
    method === 'GET' ? ['GET', 'HEAD'] : [method],
  )
  if (allowed.length === 0) return refuse('not_found')
  return refuse('method_not_allowed', {headers: {Allow: allowed.sort().join(', ')}})
}
