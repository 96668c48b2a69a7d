import type {FastifyInstance} from 'fastify'

/** Adds routes that take forms of our pages, and nothing else; what is sent is in `body`, as text by name. */
export function addFormRoutes(server: FastifyInstance, add: (scope: FastifyInstance) => void): void {
  server.register(async (scope) => {
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser(
      'application/x-www-form-urlencoded',
      {parseAs: 'string'},
      async (_request: unknown, body: string | Buffer) => new URLSearchParams(String(body)),
    )
    add(scope)
  })
}
