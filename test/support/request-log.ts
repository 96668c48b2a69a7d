/** One request the service received. */
export interface LoggedRequest {
  method: string
  /** With the query, relative to the base URL: `/deals?limit=100`. */
  path: string
  /** Real time, ms since the epoch. */
  at: number
}

/** The requests to the service, oldest first. */
export interface RequestLog {
  /** All requests since the start or the last clear. */
  readonly count: number
  /** The latest of them, at least 50,000; bounded so that a long-lived service does not grow. */
  readonly entries: readonly LoggedRequest[]
  clear(): void
}

const KEPT = 50_000

/** Creates an empty request log. */
export function createRequestLog(): RequestLog & {add(request: LoggedRequest): void} {
  let entries: LoggedRequest[] = []
  let count = 0
  return {
    get count() {
      return count
    },
    get entries() {
      return entries
    },
    clear: () => {
      entries = []
      count = 0
    },
    add: (request) => {
      entries.push(request)
      count++
      if (entries.length > 2 * KEPT) entries = entries.slice(-KEPT)
    },
  }
}
