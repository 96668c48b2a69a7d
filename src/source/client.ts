import {isUtf8} from 'node:buffer'
import {readFileSync} from 'node:fs'
import {createSecureContext} from 'node:tls'
import type {SourceDescription} from '../contract/description.ts'
import {burstOf, type SourceConfig} from '../core/config.ts'
import {LoantapeError, messageOf, newError, RetryableError, sayKept} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import {openAgent, receive} from '../core/outgoing.ts'
import {VERSION} from '../core/process.ts'
import {withRetries} from '../core/retry.ts'
import {tellForeign} from '../core/text.ts'
import type {Received, World} from '../core/types.ts'
import {type Credential, createCredentials} from './credentials.ts'
import {createTranslator, type Query} from './described.ts'
import {backoffMs, classifyFault, createTooLarge, giveUp, type Target} from './faults.ts'
import {createRateLimiter, type LimitedAnswer, type ResponseHeaders} from './rate-limit.ts'

export type ClientConfig = Pick<
  SourceConfig,
  | 'baseUrl'
  | 'baseUrlQuery'
  | 'ratePerSecond'
  | 'maxWaitMinutes'
  | 'requestTimeoutSeconds'
  | 'retries'
  | 'maxAnswerMb'
  | 'clientCertFile'
> & {
  apiKey?: string | undefined
  /** Used once the source refuses `apiKey`. */
  nextApiKey?: string | undefined
  description?: SourceDescription | undefined
  /** The rate at which an earlier run ended, requests per second. */
  learntRate?: number | undefined
  /** Until when the source asked an earlier run to wait, ms since the epoch. */
  pausedUntil?: number | undefined
}

/** One run's client has one rate limit and one retry policy. */
export type SourceClient = ReturnType<typeof createClient>

/** Shorter values, such as words in the base URL's query, may occur in any answer. */
const SHORTEST_SECRET = 8

/** Decodes the escapes of JSON and URLs for ASCII characters. */
const unescapeAscii = (text: string) =>
  text.replace(/(?:%|\\u00)([0-7][0-9a-f])|\\(["\\/])/gi, (_, code, character) =>
    code === undefined ? character : String.fromCharCode(Number.parseInt(code, 16)),
  )

const NOTHING_READ = 'This run has read nothing; what was stored before is kept.'

/** A rate limiter that can send requests. Disposing it cancels open requests and closes connections. */
export function createClient(config: ClientConfig, world: World) {
  const base = new URL(`${config.baseUrl}${config.baseUrlQuery ?? ''}`)
  const timeoutMs = Math.ceil(config.requestTimeoutSeconds * 1000)
  const agent = openAgent(base, {
    timeoutMs,
    certificate: readCertificate(config),
    maxResponseSize: Math.floor(config.maxAnswerMb * 1024 * 1024),
  })
  const maxWaitMs = config.maxWaitMinutes * 60_000
  const limiter = createRateLimiter({...config, burst: burstOf(config), maxWaitMs, host: base.host}, world)
  const {description, apiKey, nextApiKey} = config
  const keys = [apiKey, nextApiKey].filter((key) => key !== undefined)
  const credentials = createCredentials(description?.auth ?? {by: 'bearer'}, {keys, timeoutMs}, world)
  const translator = description && createTranslator(description, base)
  /** Whether an answer repeats a secret of the request, escaped or not. */
  function repeatsSecret(body: Buffer, {headers, query}: Credential): boolean {
    const tokens = Object.values(headers).map((header) => header.replace(/^\w+ /, ''))
    const texts = [body.toString(), unescapeAscii(body.toString())]
    return [...keys, ...base.searchParams.values(), ...Object.values(query), ...tokens]
      .flatMap((secret) => [secret, encodeURIComponent(secret)])
      .some((secret) => secret.length >= SHORTEST_SECRET && texts.some((text) => text.includes(secret)))
  }

  const headers = {
    // Without this header a server may use any coding. We decode none, so a small answer cannot unpack into a huge one.
    'accept-encoding': 'identity',
    'user-agent': `loantape/${VERSION}`,
  }
  const answers = new Map<number, number>()
  let hasRead = false

  async function exchange(target: Target, asked: Asked, signal: AbortSignal): Promise<Exchange> {
    const {query} = asked
    const accept = asked.isJson ? 'application/json' : 'application/json, text/csv, */*;q=0.1'
    const credential = await credentials.get()
    const requestedAt = BigInt(Math.floor(world.clock.now())) * 1000n
    const startedAt = world.realClock.now()
    try {
      const path = buildPath(base, asked.path, {...query, ...credential.query})
      const request = {origin: base.origin, path, headers: {...headers, ...credential.headers, accept}}
      const answer = await receive(agent, {...request, method: 'GET'}, {signal, timeoutMs})
      const receivedAt = world.realClock.now()
      answers.set(answer.status, (answers.get(answer.status) ?? 0) + 1)
      const kept = {...answer, headers: pickHeaders(answer.headers)}
      const received = {path: target.path, query, ...kept, requestedAt, receivedAt}
      return {status: answer.status, headers: answer.headers, startedAt, credential, received}
    } catch (error) {
      if (signal.aborted || error instanceof RetryableError) throw error
      throw classifyFault(error, target, config)
    }
  }

  async function ask(request: Asked): Promise<Exchange & {body: unknown}> {
    const {path, isJson, cancelled} = request
    // A next URL may have a query.
    const target = {host: base.host, path: path.replace(/\?.*/s, '')}
    const signal = cancelled ? AbortSignal.any([world.signal, cancelled]) : world.signal
    try {
      const answer = await withRetries(
        async () => {
          const send = () => limiter.send(() => exchange(target, request, signal), signal)
          let answer = await send()
          for (let isFresh = false; answer.status === 401; isFresh = true) {
            if (!credentials.renew(answer.credential, isFresh)) break
            answer = await send()
          }
          requireServed(answer, target, base)
          return {...answer, body: isJson ? parseAnswer(answer, target) : undefined}
        },
        {retries: config.retries, pauseMs: (failures) => backoffMs(failures, world.random), about: target},
        {...world, signal},
      )
      hasRead = true
      return answer
    } catch (cause) {
      const error = cause instanceof RetryableError ? giveUp(cause, config.retries, target) : cause
      if (error instanceof LoantapeError) throw hasRead ? error : sayKept(error, NOTHING_READ)
      if (!signal.aborted) throw error
      throw world.signal.aborted
        ? newError('INTERRUPTED', `Asked to stop during GET ${target.path} of source '${target.host}'.`, {
            cause: error,
          })
        : signal.reason
    }
  }

  return Object.assign(limiter, {
    /** Answers so far, by HTTP status. */
    answers,
    /**
     * `path` is relative to the base URL. `cancelled` cancels this request alone, which then throws the signal's reason.
     * @throws AuthError `SOURCE_UNAUTHORIZED` on 401 and 403; ContractError `SOURCE_REDIRECTED`, `SOURCE_COMPRESSED`,
     *   `SOURCE_NOT_UTF8`, `SOURCE_TOO_LARGE`; DeferredError `SOURCE_UNREACHABLE`, `SOURCE_FAILING`, `SOURCE_NOT_JSON`,
     *   `SOURCE_RATE_LIMITED`, `INTERRUPTED`; of a described source, ContractError `SOURCE_ENVELOPE`, `SOURCE_NOT_FOUND`
     */
    async getJson(path: string, query: Query = {}, cancelled?: AbortSignal): Promise<JsonAnswer> {
      const request = translator?.(path, query)
      const asked = request ?? {path, query}
      const answer = await ask({path: asked.path, query: asked.query, isJson: true, cancelled})
      const {status, received, body, headers, credential} = answer
      if (!request || status >= 300) return {status, body, received}
      // Parsed from the text that goes to the tape, so that reading the tape gives the same.
      const text = request.translate(body, headers)
      const {body: sent, ...told} = received
      const kept = repeatsSecret(sent, credential) ? {} : {body: sent}
      const original = {...told, ...request.told, ...kept}
      const translated = {...told, path, query, body: Buffer.from(text), original}
      return {status, body: parseJson(text), received: translated}
    },
    /** For answers that need not be JSON. @throws as `getJson` does */
    async getText(path: string): Promise<Received> {
      return (await ask({path, query: {}, isJson: false})).received
    },
    [Symbol.asyncDispose]: (): Promise<void> => agent[Symbol.asyncDispose](),
  })
}

export function readCertificate({clientCertFile: file}: Pick<SourceConfig, 'clientCertFile'>) {
  if (file === undefined) return {}
  try {
    const pem = readFileSync(file, 'utf8')
    createSecureContext({cert: pem, key: pem})
    if (!/CERTIFICATE-.*PRIVATE KEY-|PRIVATE KEY-.*CERTIFICATE-/s.test(pem))
      throw new Error('one of them is missing')
    return {cert: pem, key: pem}
  } catch (cause) {
    const problem = `Client certificate '${file}' in LOANTAPE_CLIENT_CERT_FILE cannot be used: expected a PEM file with a certificate and its key (${messageOf(cause)}).`
    throw newError('CONFIG_INVALID', problem, {cause})
  }
}

const HTTP_DATE = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/
/** Only UUIDs: other digits and letters could be an account number. */
const OPAQUE = /^(W\/)?"?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"?$/i

/** The headers that are kept, each with a form that cannot hold personal data. */
const KEPT_HEADERS = {
  'content-type': /^(text|application)\/(json|problem\+json|csv|plain)(; *charset=[\w-]{1,10})?$/i,
  date: HTTP_DATE,
  etag: OPAQUE,
  'last-modified': HTTP_DATE,
  'x-request-id': OPAQUE,
}

function pickHeaders(headers: ResponseHeaders): Record<string, string> {
  return Object.fromEntries(
    Object.entries(KEPT_HEADERS).flatMap(([name, form]) =>
      headers[name] === undefined ? [] : [[name, tellForeign(String(headers[name]), form)]],
    ),
  )
}

/** `path` may need escaping or have a query. */
function buildPath(base: URL, path: string, query: Query): string {
  const {pathname, search} = new URL(`${base.origin}${base.pathname.replace(/\/+$/, '')}${path}`)
  const asked = Object.entries(query)
  if (asked.length === 0 && base.search === '') return `${pathname}${search}`
  // Not `URL.searchParams`, which serializes and parses the URL again at every change.
  const params = new URLSearchParams(search)
  for (const name of base.searchParams.keys()) params.delete(name)
  for (const [name, value] of base.searchParams) params.append(name, value)
  for (const [name, value] of asked) params.set(name, String(value))
  return `${pathname}?${params}`
}

/** A 2xx answer, or a 4xx one that its caller must judge. */
export interface JsonAnswer {
  status: number
  /** Parsed; null for a 4xx answer that is not JSON. */
  body: unknown
  received: Received
}

interface Asked {
  path: string
  query: Query
  isJson: boolean
  cancelled?: AbortSignal | undefined
}

interface Exchange extends LimitedAnswer {
  credential: Credential
  received: Received
}

/** Far more than any page has: a thousand records of a thousand values. */
const MOST_VALUES = 1_000_000

/** Request Timeout and Too Early (RFC 9110, RFC 8470) are about the connection, not the request. */
const NOT_NOW = new Set([408, 425])

const CONTENT_TYPES = /^(unknown|(text|application)\/(html|plain|csv|xml|json|problem\+json|octet-stream))$/

/** Null for a 4xx answer that is not JSON. @throws ContractError `SOURCE_TOO_LARGE`; RetryableError */
function parseAnswer({status, headers, received}: Exchange, target: Target): unknown {
  const text = received.body.toString()
  if (holdsMoreValues(text, MOST_VALUES)) throw createTooLarge(target, 'more than a million values')
  const body = parseJson(text)
  if (body === undefined && status < 300) {
    const [said = ''] = String(headers['content-type'] ?? 'unknown').split(';', 1)
    const problem = `${received.body.length} bytes of type '${tellForeign(said, CONTENT_TYPES)}'`
    throw new RetryableError({code: 'SOURCE_NOT_JSON', problem})
  }
  return body ?? null
}

/** Lets pass 2xx answers, and 4xx ones that the caller must judge. @throws as `getJson` does; RetryableError */
function requireServed({status, headers, received}: Exchange, target: Target, base: URL): void {
  if (status === 401 || status === 403)
    throw newError(
      'SOURCE_UNAUTHORIZED',
      `API key refused with status ${status} by source '${target.host}' at GET ${target.path}: expected a key that may read it.`,
    )
  const location = headers.location && String(headers.location)
  const isMoved = status >= 300 && status < 400
  // An unrequested 304 is the fault of a cache in between.
  if (status >= 500 || NOT_NOW.has(status) || (isMoved && !location))
    throw new RetryableError({code: 'SOURCE_FAILING', problem: `status ${status}`})
  if (isMoved && location) {
    const {origin} = URL.parse(location, base.href) ?? {origin: 'nowhere'}
    // Following it could send the key to another origin.
    throw newError(
      'SOURCE_REDIRECTED',
      `Redirect ${status} to '${origin}' from source '${target.host}' at GET ${target.path}: expected an answer; redirects are not followed, so that the key goes nowhere else.`,
    )
  }
  if (status >= 300 || isUtf8(received.body)) return
  const answer = `Answer of source '${target.host}' to GET ${target.path}`
  const coding = findCoding(headers, received.body)
  if (coding !== undefined)
    throw newError(
      'SOURCE_COMPRESSED',
      `${answer}: it is compressed (${coding}), although loantape asked for 'identity'.`,
    )
  // With replacement characters, two different ids could become equal.
  throw newError('SOURCE_NOT_UTF8', `${answer}: its bytes are not UTF-8, which JSON is written in.`)
}

/** The first bytes of compressed data (RFC 1952, RFC 1950, RFC 8878). */
const CODINGS = {gzip: /^1f8b/, deflate: /^78(01|5e|9c|da)/, zstd: /^28b52ffd/}
const KNOWN_CODINGS = /^(gzip|x-gzip|deflate|br|zstd|compress)$/

/** Tells the compression by the first bytes or the answer's header. */
function findCoding(headers: ResponseHeaders, body: Buffer): string | undefined {
  const begin = body.subarray(0, 4).toString('hex')
  const [found] = Object.entries(CODINGS).find(([, magic]) => magic.test(begin)) ?? []
  const said = String(headers['content-encoding'] ?? 'identity').toLowerCase()
  return found ?? (said === 'identity' ? undefined : tellForeign(said, KNOWN_CODINGS))
}

/** A value takes at least two bytes as text, and up to a hundred once parsed. */
function holdsMoreValues(text: string, most: number): boolean {
  if (text.length < most * 2) return false
  let [separators, isInText] = [0, false]
  for (const [found] of text.matchAll(/\\.|[",[{]/gs)) {
    if (found === '"') isInText = !isInText
    else if (!isInText) separators += 1
    if (separators > most) return true
  }
  return false
}
