import type {Problem} from '../contract/problem.ts'

/** An answer of the service that is no success, or none at all (`status` 0). */
export class ApiError extends Error {
  /** Of the answer; 0 when none came. */
  readonly status: number
  /** Stable, for programs: `deal_not_found`; `no_answer` when none came. */
  readonly code: string
  /** The fields that were refused. */
  readonly errors: readonly {path: string; message: string}[]
  /** What the service calls the request. */
  readonly requestId: string | null

  constructor(
    problem: Pick<Problem, 'status' | 'code' | 'detail' | 'errors'>,
    more: {requestId?: string | null; cause?: unknown} = {},
  ) {
    super(`${problem.detail ?? 'The service refused the request.'} [${problem.code}]`, {cause: more.cause})
    this.name = 'ApiError'
    this.status = problem.status
    this.code = problem.code
    this.errors = problem.errors ?? []
    this.requestId = more.requestId ?? null
  }
}
