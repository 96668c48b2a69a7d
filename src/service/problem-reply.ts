import {STATUS_CODES} from 'node:http'
import type {FastifyReply} from 'fastify'
import type {z} from 'zod'
import {PROBLEMS, type Problem, type ProblemCode} from '../contract/problem.ts'

/** A refusal: thrown by handlers and hooks, answered as problem details. */
export class Refusal extends Error {
  readonly problem: Problem
  readonly headers: Record<string, string>

  constructor(problem: Problem, headers: Record<string, string> = {}) {
    super(problem.detail ?? problem.title)
    this.name = 'Refusal'
    this.problem = problem
    this.headers = headers
  }
}

/** A refusal by RFC 9457; its type is `about:blank`, so the title is that of the status, and its detail the code's meaning unless told. */
export function refuse(
  code: ProblemCode,
  more: {detail?: string; errors?: {path: string; message: string}[]; headers?: Record<string, string>} = {},
): Refusal {
  const {headers, ...words} = more
  const {status, meaning} = PROBLEMS[code]
  const title = STATUS_CODES[status] ?? 'Error'
  return new Refusal({type: 'about:blank', title, status, code, detail: meaning, ...words}, headers)
}

/** What was found. @throws Refusal of this code when nothing was */
export function requireFound<T>(found: T | undefined, code: ProblemCode): T {
  if (found === undefined) throw refuse(code)
  return found
}

/** Reads what a request carries; refuses what the schema does not expect, naming every path, never a value. */
export function parseInput<T>(
  schema: z.ZodType<T>,
  value: unknown,
  code: 'invalid_body' | 'invalid_parameter',
): T {
  const parsed = schema.safeParse(value)
  if (parsed.success) return parsed.data
  const errors = parsed.error.issues.flatMap((issue) => {
    const path = issue.path.join('.')
    if (issue.code !== 'unrecognized_keys') return [{path, message: issue.message}]
    return issue.keys.map((key) => ({path: path ? `${path}.${key}` : key, message: 'unknown field'}))
  })
  const where = code === 'invalid_body' ? 'body' : 'query'
  const paths = [...new Set(errors.map(({path}) => path || where))].join(', ')
  throw refuse(code, {detail: `Not as expected: ${paths}. See errors.`, errors})
}

/** Answers with problem details. */
export function sendProblem(
  reply: FastifyReply,
  problem: Problem,
  headers: Record<string, string> = {},
): FastifyReply {
  return reply.code(problem.status).headers(headers).type('application/problem+json').send(problem)
}
