import {STATUS_CODES} from 'node:http'
import type {FastifyReply} from 'fastify'
import type {z} from 'zod'
import type {Problem} from '../contract/problem.ts'

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

/** Builds problem details by RFC 9457; the type is `about:blank`, so the title is that of the status. */
export function buildProblem(input: {
  status: number
  code: string
  detail?: string
  errors?: {path: string; message: string}[]
}): Problem {
  return {type: 'about:blank', title: STATUS_CODES[input.status] ?? 'Error', ...input}
}

/** Refuses a request whose body or query is not what the schema expects; names every path, never a value. */
export function refuseInvalid(code: 'invalid_body' | 'invalid_parameter', error: z.ZodError): Refusal {
  const errors = error.issues.flatMap((issue) => {
    const path = issue.path.join('.')
    if (issue.code !== 'unrecognized_keys') return [{path, message: issue.message}]
    return issue.keys.map((key) => ({path: path ? `${path}.${key}` : key, message: 'unknown field'}))
  })
  const paths = errors.map(({path}) => path || 'body').join(', ')
  return new Refusal(
    buildProblem({status: 400, code, detail: `Not as expected: ${paths}. See errors.`, errors}),
  )
}

/** Answers with problem details. */
export function sendProblem(
  reply: FastifyReply,
  problem: Problem,
  headers: Record<string, string> = {},
): FastifyReply {
  return reply.code(problem.status).headers(headers).type('application/problem+json').send(problem)
}
