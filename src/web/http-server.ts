import type {AddressInfo} from 'node:net'
import {type FastifyInstance, fastify} from 'fastify'
import type {Config} from '../config.ts'
import {codeOf, newError} from '../errors.ts'
import type {World} from '../types.ts'
import {guardAccess, requireSafeAddress} from './access.ts'

/** A web side that listens; disposing it closes it. */
export interface WebSide extends AsyncDisposable {
  /** `http://127.0.0.1:8321` */
  url: string
}

const BODY_LIMIT = 64 * 1024

/**
 * A server that guards its pages, words its failures and answers `/healthz`; it does not listen yet.
 *
 * @throws ConfigError `WEB_TOKEN_MISSING`
 */
export function createHttpServer(config: Config, world: World): FastifyInstance {
  requireSafeAddress(config)
  const server: FastifyInstance = fastify({
    bodyLimit: BODY_LIMIT,
    requestTimeout: 15_000,
    // Longer than any answer may take, during which nothing is sent.
    connectionTimeout: 60_000,
    keepAliveTimeout: 5_000,
    forceCloseConnections: true,
  })
  server.server.maxConnections = 200
  guardAccess(server, config)
  server.setErrorHandler<Error & {statusCode?: number}>((error, request, reply) => {
    const status = error.statusCode ?? 500
    if (status >= 500) world.log.error({err: error, path: request.routeOptions.url}, 'a request failed')
    return reply
      .code(status)
      .type('text/plain')
      .send(status >= 500 ? 'Failed; see the log.\n' : `${error.message}\n`)
  })
  server.setNotFoundHandler((_request, reply) => reply.code(404).type('text/plain').send('Not found.\n'))
  server.get('/healthz', async (_request, reply) => reply.type('text/plain').send('ok\n'))
  return server
}

/**
 * Lets a server listen where the settings say.
 *
 * @returns its URL
 * @throws ConfigError `WEB_ADDRESS`
 */
export async function listenAt(server: FastifyInstance, {webHost, webPort}: Config): Promise<string> {
  await server.listen({host: webHost, port: webPort}).catch((error: unknown) => {
    throw newError(
      'WEB_ADDRESS',
      `The web side cannot listen on '${webHost}:${webPort}' (${codeOf(error)}): expected an address of this machine and a free port.`,
      {cause: error},
    )
  })
  const {port} = server.server.address() as AddressInfo
  return `http://${webHost.includes(':') ? `[${webHost}]` : webHost}:${port}`
}
