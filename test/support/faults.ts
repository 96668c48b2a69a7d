import type {WireRecord} from '../../src/core/types.ts'

/** How an answer is spoilt. */
export type Fault =
  /** Answers with this status without asking the endpoint; the body defaults to problem details. */
  | {kind: 'status'; status: number; headers?: Record<string, string>; body?: string | object}
  /** Waits before handling the request. */
  | {kind: 'delay'; ms: number}
  /** Resets the connection before the answer, or after half of its body. */
  | {kind: 'reset'; when: 'before_headers' | 'mid_body'}
  /** Sends the true status, half of the body, and closes; the framing is `content-length` by default. */
  | {kind: 'truncate'; framing?: 'content-length' | 'chunked'}
  /** 200 with a body that is not JSON, in correct framing. */
  | {kind: 'wrong_json'}
  /** 200 with a web page. */
  | {kind: 'html'}
  /** A list that claims to continue at the cursor of the request. */
  | {kind: 'repeat_cursor'}
  /** Moves `has_more` and `next_cursor` of a list elsewhere, or breaks them. */
  | {kind: 'envelope'; shape: EnvelopeShape}
  /** Changes the JSON body at will. */
  | {kind: 'mutate'; change: (body: WireRecord) => unknown}

/** Where an `envelope` fault puts `has_more` and `next_cursor`, or how it breaks them. */
export type EnvelopeShape =
  /** In an object `pagination` or `meta` beside `data`. */
  | 'pagination'
  | 'meta'
  /** `data: {deals: […], has_more, next_cursor}` */
  | 'data_object'
  | 'missing_has_more'
  /** `"true"` and `"false"` */
  | 'string_has_more'
  | 'no_cursor'

/** The requests a rule is for; without it, all. */
interface FaultMatch {
  method?: string
  /** A prefix or a pattern of the path with its query, relative to the base URL: `/deals?limit=100`. */
  path?: string | RegExp
  /** Only the nth matching request, from 1. */
  nth?: number | readonly number[]
  /** At most this often. */
  times?: number
}

/** One fault and its requests. */
export interface FaultRule {
  match?: FaultMatch
  fault: Fault
}

/** The faults of a running service; every matching rule applies, in the order added. */
export interface Faults {
  add(rule: FaultRule): void
  clear(): void
}

/** A request as rules see it. */
interface FaultSubject {
  method: string
  /** Relative to the base URL, with the query. */
  path: string
}

/** The rules, and how many requests each matched. */
export interface FaultBook extends Faults {
  /** The faults that apply to this request; calling counts it. */
  takeDue(subject: FaultSubject): Fault[]
}

function matches({method, path}: FaultMatch, subject: FaultSubject): boolean {
  if (method !== undefined && method.toUpperCase() !== subject.method) return false
  if (path === undefined) return true
  return typeof path === 'string' ? subject.path.startsWith(path) : subject.path.search(path) !== -1
}

/** Creates an empty book of fault rules. */
export function createFaultBook(): FaultBook {
  let rules: (FaultRule & {seen: number; applied: number})[] = []
  return {
    add: (rule) => void rules.push({...rule, seen: 0, applied: 0}),
    clear: () => {
      rules = []
    },
    takeDue: (subject) =>
      rules.flatMap((rule) => {
        const {fault, match = {}} = rule
        const {times = Number.POSITIVE_INFINITY, nth} = match
        if (!matches(match, subject)) return []
        rule.seen += 1
        if (rule.applied >= times || (nth !== undefined && ![nth].flat().includes(rule.seen))) return []
        rule.applied += 1
        return [fault]
      }),
  }
}
