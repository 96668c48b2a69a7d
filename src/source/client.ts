import {isUtf8} from 'node:buffer'
import {Pool} from 'undici'
import {burstOf, type SourceConfig} from '../config.ts'
import {LoantapeError, newError, RetryableError, sayKept} from '../errors.ts'
import {tellForeign} from '../foreign.ts'
import type {World} from '../types.ts'
import {VERSION} from '../version.ts'
import {type Exchange, type JsonAnswer, parseAnswer, requireServed, type TextAnswer} from './answer.ts'
import type {ResponseHeaders} from './limit-headers.ts'
import {createRateLimiter} from './rate-limit.ts'
import {receive} from './receive.ts'
import {classifyFault, type Target, withRetries} from './retry.ts'

/** The settings of a client. */
export type ClientConfig = Pick<
  SourceConfig,
  | 'baseUrl'
  | 'baseUrlQuery'
  | 'ratePerSecond'
  | 'maxWaitMinutes'
  | 'requestTimeoutSeconds'
  | 'retries'
  | 'maxAnswerMb'
> & {
  /** Sent as Bearer token. */
  apiKey?: string | undefined
  /** Requests a second that an earlier run had arrived at. */
  learntRate?: number | undefined
}

/** Query parameters by name; an absent one is not sent. */
type Query = Record<string, string | number | undefined>

/** Speaks HTTP to the source: one key, one rate, one retry policy. */
export type SourceClient = ReturnType<typeof createClient>

const MEBIBYTE = 1024 * 1024
/** A body that drips never times out between two parts: the whole of it may take this many timeouts. */
const TIMEOUTS_PER_ANSWER = 10

const NOTHING_READ = 'This run has read nothing; what was stored before is kept.'

/** Creates the client of one run; disposing it cancels what is under way and closes its connections. */
export function createClient(config: ClientConfig, world: World) {
  const base = new URL(`${config.baseUrl}${config.baseUrlQuery ?? ''}`)
  const timeoutMs = Math.ceil(config.requestTimeoutSeconds * 1000)
  const pool = new Pool(base.origin, {
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    connect: {timeout: timeoutMs},
    maxResponseSize: Math.floor(config.maxAnswerMb * MEBIBYTE),
  })
  const limiter = createRateLimiter(
    {
      ratePerSecond: config.ratePerSecond,
      burst: burstOf(config),
      learntRate: config.learntRate,
      maxWaitMs: config.maxWaitMinutes * 60_000,
      host: base.host,
    },
    world,
  )
  const headers = {
    ...(config.apiKey !== undefined && {authorization: `Bearer ${config.apiKey}`}),
    // Said nothing, a server may send any coding.
    'accept-encoding': 'identity',
    'user-agent': `loantape/${VERSION}`,
  }
  const answers = new Map<number, number>()
  let hasRead = false

  async function exchange(
    target: Target,
    {query, accept}: {query: Query; accept: string},
    signal: AbortSignal,
  ): Promise<Exchange> {
    const observedAt = BigInt(Math.floor(world.clock.now())) * 1000n
    const startedAt = world.realClock.now()
    try {
      const request = {path: buildPath(base, target.path, query), headers: {...headers, accept}}
      const answer = await receive(pool, request, {signal, timeoutMs: timeoutMs * TIMEOUTS_PER_ANSWER})
      const {status, body} = answer
      answers.set(status, (answers.get(status) ?? 0) + 1)
      const receivedAt = world.realClock.now()
      return {
        status,
        headers: answer.headers,
        text: new TextDecoder().decode(body),
        isUtf8: isUtf8(body),
        observedAt,
        startedAt,
        receivedAt,
        received: {
          path: target.path,
          query: Object.fromEntries(
            Object.entries(query).filter((pair): pair is [string, string | number] => pair[1] !== undefined),
          ),
          status,
          headers: pickHeaders(answer.headers),
          requestedAt: observedAt,
          receivedAt,
          body,
        },
      }
    } catch (error) {
      if (signal.aborted || error instanceof RetryableError) throw error
      throw classifyFault(error, target, config)
    }
  }

  async function ask<T>(
    request: {path: string; query: Query; accept: string; cancelled?: AbortSignal | undefined},
    read: (answer: Exchange, target: Target, base: URL) => T,
  ): Promise<T> {
    const {path, cancelled} = request
    const target = {host: base.host, path}
    const signal = cancelled ? AbortSignal.any([world.signal, cancelled]) : world.signal
    try {
      const answer = await withRetries(
        async () => read(await limiter.send(() => exchange(target, request, signal), signal), target, base),
        {retries: config.retries, target},
        {...world, signal},
      )
      hasRead = true
      return answer
    } catch (error) {
      if (error instanceof LoantapeError) throw hasRead ? error : sayKept(error, NOTHING_READ)
      if (!signal.aborted) throw error
      throw world.signal.aborted
        ? newError('INTERRUPTED', `Asked to stop during GET ${target.path} of source '${target.host}'.`, {
            cause: error,
          })
        : signal.reason
    }
  }

  return {
    /** Answers so far by HTTP status. */
    answers,
    /** Time spent waiting because the source asked for it, ms. */
    get waitedMs(): number {
      return limiter.waitedMs
    },
    /** Real instant since which the source makes us wait, ms; null when it does not. */
    get waitingSince(): number | null {
      return limiter.waitingSince
    },
    /** Requests a second at present: the learnt rate. */
    get ratePerSecond(): number {
      return limiter.ratePerSecond
    },
    /**
     * Asks for one resource.
     *
     * @param path relative to the base URL
     * @param cancelled cancels this request alone, which then throws the signal's reason
     * @throws AuthError `SOURCE_UNAUTHORIZED` on 401 and 403; ContractError `SOURCE_REDIRECTED`, `SOURCE_NOT_JSON`,
     * `SOURCE_NOT_UTF8`, `SOURCE_TOO_LARGE`; DeferredError `SOURCE_UNREACHABLE`, `SOURCE_FAILING`, `SOURCE_RATE_LIMITED`, `INTERRUPTED`
     */
    getJson(path: string, query: Query = {}, cancelled?: AbortSignal): Promise<JsonAnswer> {
      return ask({path, query, accept: 'application/json', cancelled}, parseAnswer)
    },
    /** Asks for one resource that need not be JSON; throws as `getJson` does. */
    getText(path: string, query: Query = {}): Promise<TextAnswer> {
      return ask({path, query, accept: 'application/json, text/csv, */*;q=0.1'}, (answer, target) => {
        requireServed(answer, target, base)
        return answer
      })
    },
    async [Symbol.asyncDispose](): Promise<void> {
      await pool.destroy()
    },
  }
}

const HTTP_DATE = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/
const OPAQUE = /^(W\/)?"?[0-9a-f-]{16,64}"?$/i

/** What is kept of an answer's headers, which say something of its content, and the form in which it can name nobody. */
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

/** A path may hold what must be escaped, or a query of its own. */
function buildPath(base: URL, path: string, query: Query): string {
  const {pathname, search} = new URL(`${base.origin}${base.pathname.replace(/\/+$/, '')}${path}`)
  const asked = Object.entries(query).filter(([, value]) => value !== undefined)
  if (asked.length === 0 && base.search === '') return `${pathname}${search}`
  // Not those of the URL: it would be written and read again with each of them.
  const params = new URLSearchParams(search)
  for (const name of base.searchParams.keys()) params.delete(name)
  for (const [name, value] of base.searchParams) params.append(name, value)
  for (const [name, value] of asked) params.set(name, String(value))
  return `${pathname}?${params}`
}
