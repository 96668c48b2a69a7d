import type {IncomingMessage} from 'node:http'
import type {AddressInfo} from 'node:net'
import {type FastifyInstance, fastify} from 'fastify'
import type {Config} from '../config.ts'
import {codeOf, newError} from '../errors.ts'
import type {World} from '../types.ts'
import {guardAccess, isOpenPath, requireSafeAddress, SECURITY_HEADERS} from './access.ts'
import {createPlaces, limitConnections} from './callers.ts'
import {LIVE_PATH} from './live.ts'
import {refuse, refuseBusy} from './refusal.ts'

/** A web side that listens; disposing it closes it. */
export interface WebSide extends AsyncDisposable {
  /** `http://127.0.0.1:8321` */
  url: string
}

const BODY_LIMIT = 64 * 1024
/** Headers and body of a request come within this time. */
const REQUEST_MS = 10_000
/** Connections beyond take the place of those that say nothing. */
const MOST_CONNECTIONS = 200
/** Answers under way, probes, webhooks and event streams not counted: with these fewer than there are connections. */
const ANSWERS = {all: 60, each: 20}

/**
 * A server that guards its pages, words its failures and answers `/healthz`; it does not listen yet.
 *
 * @throws ConfigError `WEB_TOKEN_MISSING`
 */
export function createHttpServer(config: Config, world: World): FastifyInstance {
  requireSafeAddress(config)
  const server: FastifyInstance = fastify({
    bodyLimit: BODY_LIMIT,
    requestTimeout: REQUEST_MS,
    // What comes drop by drop is looked at this often.
    http: {connectionsCheckingInterval: 1_000},
    trustProxy: config.webProxy?.split(/\s*,\s*/) ?? false,
    // Longer than any answer may take, during which nothing is sent.
    connectionTimeout: 60_000,
    keepAliveTimeout: 5_000,
    forceCloseConnections: true,
    // No hook has seen the request.
    frameworkErrors: (error, request, reply) =>
      refuse(request, reply.headers(SECURITY_HEADERS), error.statusCode ?? 400, {
        title: 'Not understood',
        problem: error.message,
      }),
  })
  // Node holds a request's headers to its timeout, and no body that goes on to come drop by drop.
  server.server.on('request', (request: IncomingMessage) => {
    const timer = setTimeout(() => request.complete || request.destroy(), REQUEST_MS)
    request.once('close', () => clearTimeout(timer))
  })
  const markAnswered = limitConnections(server.server, MOST_CONNECTIONS)
  guardAccess(server, config)
  const enter = createPlaces(ANSWERS)
  server.addHook('onRequest', async (request, reply) => {
    if (isOpenPath(request)) return
    const leave = request.routeOptions.url === LIVE_PATH ? () => undefined : enter(request.ip)
    if (!leave) return refuseBusy(request, reply)
    const unmark = markAnswered(request.raw.socket)
    reply.raw.once('close', () => {
      leave()
      unmark()
    })
    return
  })
  server.setErrorHandler<Error & {statusCode?: number}>((error, request, reply) => {
    const status = error.statusCode ?? 500
    if (status >= 500) world.log.error({err: error, path: request.routeOptions.url}, 'a request failed')
    return status >= 500
      ? refuse(request, reply, status, {title: 'Failed', problem: 'Failed; see the log.'})
      : refuse(request, reply, status, {title: 'Not understood', problem: error.message})
  })
  server.setNotFoundHandler((request, reply) =>
    refuse(request, reply, 404, {title: 'Not found', problem: 'Not found.', next: 'There is no such page.'}),
  )
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
