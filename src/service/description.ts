import type {FastifyInstance, FastifyRequest} from 'fastify'
import {VERSION} from '../version.ts'
import {renderApiPage} from './api-page.ts'
import {buildOpenApi} from './openapi.ts'

/** Adds `/openapi.json` and `/docs`: beside the API, without data, so without a key. */
export function addDescription(app: FastifyInstance, prefix: string): void {
  const config = {isPublic: true} as const
  const serverUrlOf = ({protocol, host}: FastifyRequest): string => `${protocol}://${host}${prefix}`
  app.get('/openapi.json', {config}, (request) =>
    buildOpenApi({version: VERSION, serverUrl: serverUrlOf(request)}),
  )
  app.get('/docs', {config}, (request, reply) => {
    reply.type('text/html; charset=utf-8')
    reply.header('Content-Security-Policy', "default-src 'none'; style-src 'unsafe-inline'")
    return reply.send(renderApiPage(serverUrlOf(request)))
  })
}
