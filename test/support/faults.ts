import type {WireRecord} from '../../src/core/types.ts'

/** How an answer is spoilt. */
export type Fault =
  /** Answers with this status without asking the endpoint; the body defaults to problem details. */
  | {kind: 'status'; status: number; headers?: Record<string, string>; body?: string | object}
  /** Waits before handling the request. */
  | {kind: 'delay'; ms: number}
  /** Resets the connection before the answer, or after half of its body. */
  | {kind: 'reset'; when: 'before_headers' | 'mid_body'}
  /** Sends the true status and half of the body, then closes the connection; the framing is `content-length` by default. */
  | {kind: 'truncate'; framing?: 'content-length' | 'chunked'}
  /** 200 with a body that is not JSON, in correct framing. */
  | {kind: 'wrong_json'}
  /** 200 with a web page. */
  | {kind: 'html'}
  /** A list whose next cursor is the cursor of the request. */
  | {kind: 'repeat_cursor'}
  /** Moves `has_more` and `next_cursor` of a list elsewhere, or breaks them. */
  | {kind: 'envelope'; shape: keyof typeof ENVELOPES}
  /** Changes the JSON body. */
  | {kind: 'mutate'; change: (body: WireRecord) => unknown}

/** Where an `envelope` fault puts `has_more` and `next_cursor` of a list, or how it breaks them. */
export const ENVELOPES = {
  pagination: ({data, ...rest}: WireRecord) => ({data, pagination: rest}),
  meta: ({data, ...rest}: WireRecord) => ({data, meta: rest}),
  data_object: ({data, ...rest}: WireRecord) => ({data: {deals: data, ...rest}}),
  string_has_more: (body: WireRecord) => ({...body, has_more: String(body.has_more)}),
  no_cursor: ({next_cursor: _, ...rest}: WireRecord) => rest,
}

/** A fault and the requests it applies to; all of them by default. */
export interface FaultRule {
  match?: {
    method?: string
    /** A prefix or pattern of the path with its query, relative to the base URL: `/deals?limit=100`. */
    path?: string | RegExp
    /** Only the nth matching request, from 1. */
    nth?: number | readonly number[]
    /** Applies at most this often. */
    times?: number
  }
  fault: Fault
}

/** Creates an empty book of rules; every matching rule applies, in the order added. */
export function createFaultBook() {
  let rules: (FaultRule & {seen: number; applied: number})[] = []
  return {
    add: (rule: FaultRule) => void rules.push({...rule, seen: 0, applied: 0}),
    clear: () => {
      rules = []
    },
    /** Returns the faults that apply to this request, and counts the request. */
    takeDue: (request: {method: string; path: string}): Fault[] =>
      rules.flatMap((rule) => {
        const {method = request.method, path = '', nth, times = Infinity} = rule.match ?? {}
        const isOfPath = typeof path === 'string' ? request.path.startsWith(path) : path.test(request.path)
        if (method !== request.method || !isOfPath) return []
        rule.seen += 1
        if (rule.applied >= times || (nth !== undefined && ![nth].flat().includes(rule.seen))) return []
        rule.applied += 1
        return [rule.fault]
      }),
  }
}
