import type {AddressInfo} from 'node:net'
import {fastify} from 'fastify'
import {z} from 'zod'
import type {Config} from '../config.ts'
import {codeOf, messageOf, newError} from '../errors.ts'
import {requireRelease} from '../release/manifest.ts'
import {openRelease} from '../release/open-release.ts'
import type {World} from '../types.ts'
import {guardAccess, requireSafeAddress} from './access.ts'
import {addActions} from './actions.ts'
import {createMetrics} from './metrics.ts'
import type {WebTools} from './overview.ts'
import {addWebhooks} from './webhooks.ts'
import {addWorkbench} from './workbench.ts'

/** A web side that listens; disposing it closes it. */
export interface WebSide extends AsyncDisposable {
  /** `http://127.0.0.1:8321` */
  url: string
}

const BODY_LIMIT = 64 * 1024

/**
 * Serves the workbench, probes, metrics and the receiver of webhooks.
 *
 * @throws ConfigError `WEB_TOKEN_MISSING`; UnexpectedError `WEB_ADDRESS`
 */
export async function startWeb(
  config: Config,
  given: Omit<WebTools, 'takesWebhooks'>,
  world: World,
): Promise<WebSide> {
  requireSafeAddress(config)
  const tools: WebTools = {...given, takesWebhooks: config.webhookSecret !== undefined}
  const server = fastify({
    bodyLimit: BODY_LIMIT,
    requestTimeout: 15_000,
    // Longer than any answer may take, during which nothing is sent.
    connectionTimeout: 60_000,
    keepAliveTimeout: 5_000,
    forceCloseConnections: true,
  })
  const metrics = createMetrics(tools, world)
  const findProblem = createReadiness(tools, world)
  server.server.maxConnections = 200
  guardAccess(server, config)
  server.addHook('onResponse', async (_request, reply) => metrics.countAnswer(reply.statusCode))
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
  server.get('/readyz', async (_request, reply) => {
    const problem = await findProblem()
    return reply
      .code(problem === null ? 200 : 503)
      .type('text/plain')
      .send(problem === null ? 'ready\n' : `not ready: ${problem}\n`)
  })
  server.get('/metrics', async (_request, reply) =>
    reply.type(metrics.contentType).send(await metrics.render()),
  )
  await using workbench = new AsyncDisposableStack()
  workbench.use(addWorkbench(server, config, tools, world))
  workbench.use(addActions(server, config, tools, world))
  addWebhooks(server, config, tools.stateDb, world)

  await server.listen({host: config.webHost, port: config.webPort}).catch((error: unknown) => {
    throw newError(
      'WEB_ADDRESS',
      `The web side cannot listen on '${config.webHost}:${config.webPort}' (${codeOf(error)}): expected an address of this machine and a free port.`,
      {cause: error},
    )
  })
  const {port} = server.server.address() as AddressInfo
  const host = config.webHost.includes(':') ? `[${config.webHost}]` : config.webHost
  const listening = workbench.move()
  return {
    url: `http://${host}:${port}`,
    async [Symbol.asyncDispose]() {
      await listening.disposeAsync()
      await server.close()
    },
  }
}

const READY_MS = 5_000

/** Asks the state database and the current release a real question; one answer serves all who ask within some seconds. */
function createReadiness({stateDb, folder}: WebTools, {realClock}: World): () => Promise<string | null> {
  let asked: {at: number; problem: Promise<string | null>} | undefined
  async function findProblem(): Promise<string | null> {
    try {
      stateDb.db.prepare('select run_id from run limit 1').get()
      await using db = await openRelease(requireRelease(folder))
      await db.one(z.object({deals: z.coerce.number()}), 'select deals from mart.portfolio_summary')
      return null
    } catch (error) {
      return messageOf(error)
    }
  }
  return () => {
    const now = realClock.now()
    if (!asked || now - asked.at >= READY_MS) asked = {at: now, problem: findProblem()}
    return asked.problem
  }
}
