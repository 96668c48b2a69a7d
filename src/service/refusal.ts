import {STATUS_CODES} from 'node:http'
import {PROBLEMS, type Problem, type ProblemCode} from '../contract/problem.ts'

/** Thrown by handlers and hooks; answered as problem details. */
export class Refusal extends Error {
  readonly problem: Problem
  readonly headers: Record<string, string>

  constructor(problem: Problem, headers: Record<string, string> = {}) {
    super(problem.detail)
    this.name = 'Refusal'
    this.problem = problem
    this.headers = headers
  }
}

/** RFC 9457: `about:blank`, so titled like its status. By default, the detail is the code's meaning. */
export function refuse(
  code: ProblemCode,
  more: {detail?: string; errors?: {path: string; message: string}[]; headers?: Record<string, string>} = {},
): Refusal {
  const {headers, ...words} = more
  const {status, meaning} = PROBLEMS[code]
  const title = STATUS_CODES[status] ?? 'Error'
  return new Refusal({type: 'about:blank', title, status, code, detail: meaning, ...words}, headers)
}
