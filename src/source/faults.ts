import {errors} from 'undici'
import {codeOf, type LoantapeError, messageOf, newError, RetryableError, reachOf} from '../core/errors.ts'

/** The request as errors and logs name it. */
export interface Target {
  host: string
  /** Relative to the base URL, without the query. */
  path: string
}

const FIRST_WAIT_MS = 500
const LONGEST_WAIT_MS = 30_000

/** In ms: uniform between 0 and 0.5 s, doubled by each earlier wait, at most 30 s ("full jitter"). */
export function backoffMs(attempt: number, random: () => number): number {
  return Math.floor(random() * Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** attempt))
}

/** Faults of this program, which retrying does not help. */
const OWN_FAULTS = new Set([
  'UND_ERR_ABORTED',
  'UND_ERR_CLOSED',
  'UND_ERR_DESTROYED',
  'UND_ERR_INVALID_ARG',
  'UND_ERR_INVALID_RETURN_VALUE',
  'UND_ERR_NOT_SUPPORTED',
])

/** Broken connections and timeouts are worth a retry, an answer that is too large is not. */
export function classifyFault(error: unknown, target: Target, {maxAnswerMb}: {maxAnswerMb: number}): unknown {
  const code = codeOf(error)
  if (code === 'UND_ERR_RES_EXCEEDED_MAX_SIZE') {
    return createTooLarge(target, `more than ${maxAnswerMb} MiB`, error)
  }
  if (error instanceof errors.HTTPParserError) {
    // Its `data` is the source's content, which no error may hold.
    return new RetryableError({code: 'SOURCE_UNREACHABLE', problem: 'HTTP_UNREADABLE'})
  }
  const [, refusal] = /^Proxy response \((\d+)\)/.exec(messageOf(error)) ?? []
  if (refusal !== undefined) {
    const problem = `the proxy's ${refusal}`
    return new RetryableError({code: 'SOURCE_UNREACHABLE', problem, cause: error})
  }
  if (code === 'UNEXPECTED' || code.startsWith('ERR_INVALID_') || OWN_FAULTS.has(code)) return error
  return new RetryableError({code: 'SOURCE_UNREACHABLE', problem: reachOf(error), cause: error})
}

export function createTooLarge({host, path}: Target, size: string, cause?: unknown): LoantapeError {
  return newError(
    'SOURCE_TOO_LARGE',
    `Answer of source '${host}' to GET ${path}: ${size}, expected a page of records.`,
    {cause},
  )
}

/** The error after the last retry. */
export function giveUp(failure: RetryableError, retries: number, {host, path}: Target): LoantapeError {
  const {problem} = failure
  const tries = retries === 0 ? 'once' : `${retries + 1} times in a row`
  const words = {
    SOURCE_NOT_JSON: `Source '${host}' answered GET ${path}, ${tries}, at last with ${problem}: expected JSON that is not cut off.`,
    SOURCE_FAILING: `Source '${host}' failed at GET ${path}, ${tries}, at last with ${problem}: expected an answer.`,
    SOURCE_UNREACHABLE: `Source '${host}' could not be reached at GET ${path}, ${tries}, at last with '${problem}': expected an answer.`,
  }
  const codes = ['SOURCE_NOT_JSON', 'SOURCE_FAILING'] as const
  const code = codes.find((one) => one === failure.code) ?? 'SOURCE_UNREACHABLE'
  return newError(code, words[code], {cause: failure})
}
