import {type RealClock, realClock} from '../clock.ts'
import {problemSchema} from '../contract/problem.ts'
import {parseJson} from '../json.ts'
import {parseRetryAfter} from '../retry-after.ts'
import {ApiError} from './api-error.ts'

/** How a client reaches the service. */
export interface ClientOptions {
  /** With the API prefix: `https://deals.example.com/v1`. */
  baseUrl: string
  /** `sk_live_…` or `sk_test_…`. */
  apiKey: string
  /** How often a request is sent again; default 4. */
  retries?: number
  /** Of one attempt; default 30 s. */
  timeoutMs?: number
  fetch?: typeof fetch
  clock?: RealClock
  /** Uniform in [0, 1), for jitter. */
  random?: () => number
}

/** One request, whatever its body. */
export interface Outgoing {
  method: string
  /** Relative to the base URL, with the query. */
  path: string
  headers: Record<string, string>
  body?: string | FormData | undefined
}

const BACKOFF_MS = 250
const LONGEST_WAIT_MS = 60_000
const OVERLOADED = new Set([429, 503])
const FAILING = new Set([500, 502, 503, 504])

/** Sending twice does no harm: reads, and what carries an Idempotency-Key. */
function isRepeatable({method, headers}: Outgoing): boolean {
  return method === 'GET' || 'idempotency-key' in headers
}

/**
 * The wait before attempt `attempt` + 1: `Retry-After` (seconds or date) where the service names one, else full jitter
 * over a doubling span.
 */
export function waitBefore(
  attempt: number,
  retryAfter: string | null,
  {now, random}: {now: number; random: () => number},
): number {
  const named = retryAfter === null ? null : parseRetryAfter(retryAfter, now)
  return Math.min(LONGEST_WAIT_MS, named ?? random() * BACKOFF_MS * 2 ** attempt)
}

async function refusalOf(response: Response): Promise<ApiError> {
  const requestId = response.headers.get('x-request-id')
  // A proxy in between may answer anything: what is no JSON says nothing of why.
  const parsed = problemSchema.safeParse(parseJson(await response.text()))
  if (parsed.success) return new ApiError(parsed.data, {requestId})
  const detail = `The service answered ${response.status} without saying why.`
  return new ApiError({status: response.status, code: 'unknown', detail}, {requestId})
}

/** Far more than any file the service takes. */
const MOST_BYTES = 64 * 1024 * 1024

/** Reads a body to its end: one that is cut short is an attempt that failed, and one that unpacks to more than there can be is no answer. */
async function readWhole(response: Response): Promise<Response | ApiError> {
  const parts: Uint8Array[] = []
  let length = 0
  for await (const part of response.body ?? []) {
    length += part.length
    parts.push(part)
    if (length > MOST_BYTES)
      return new ApiError({
        status: response.status,
        code: 'answer_too_large',
        detail: `The service answered with more than ${MOST_BYTES} bytes.`,
      })
  }
  return new Response(length > 0 ? Buffer.concat(parts) : null, response)
}

/** Sends requests: what meets an overload, or fails and may be repeated, is sent again. */
export function createSender(options: ClientOptions): (outgoing: Outgoing) => Promise<Response> {
  const {apiKey, retries = 4, timeoutMs = 30_000, fetch = globalThis.fetch, clock = realClock} = options
  const {random = Math.random} = options
  const baseUrl = options.baseUrl.replace(/\/+$/, '')

  async function attempt({method, path, headers, body}: Outgoing): Promise<Response | ApiError> {
    try {
      const response = await fetch(baseUrl + path, {
        method,
        headers: {authorization: `Bearer ${apiKey}`, ...headers},
        redirect: 'error',
        signal: AbortSignal.timeout(timeoutMs),
        ...(body !== undefined && {body}),
      })
      return await readWhole(response)
    } catch (cause) {
      return new ApiError({status: 0, code: 'no_answer', detail: 'The service did not answer.'}, {cause})
    }
  }

  return async (outgoing) => {
    for (let count = 0; ; count++) {
      const answer = await attempt(outgoing)
      if (answer instanceof Response && answer.ok) return answer
      const {status} = answer
      const mayRepeat =
        OVERLOADED.has(status) || ((status === 0 || FAILING.has(status)) && isRepeatable(outgoing))
      const refusal = answer instanceof Response ? await refusalOf(answer) : answer
      if (!mayRepeat || count >= retries) throw refusal
      const retryAfter = answer instanceof Response ? answer.headers.get('retry-after') : null
      await clock.sleep(waitBefore(count, retryAfter, {now: clock.now(), random}))
    }
  }
}
