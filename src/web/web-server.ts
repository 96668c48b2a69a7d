import {z} from 'zod'
import type {Config} from '../config.ts'
import {messageOf} from '../errors.ts'
import {requireRelease} from '../release/manifest.ts'
import {openRelease} from '../release/open-release.ts'
import type {World} from '../types.ts'
import {addActions} from './actions.ts'
import {createHttpServer, listenAt, type WebSide} from './http-server.ts'
import {createMetrics} from './metrics.ts'
import type {WebTools} from './overview.ts'
import {addWebhooks} from './webhooks.ts'
import {addWorkbench} from './workbench.ts'

/**
 * Serves the workbench, probes, metrics and the receiver of webhooks.
 *
 * @throws ConfigError `WEB_TOKEN_MISSING`; UnexpectedError `WEB_ADDRESS`
 */
export async function startWeb(
  config: Config,
  given: Omit<WebTools, 'config' | 'takesWebhooks'>,
  world: World,
): Promise<WebSide> {
  const tools: WebTools = {...given, config, takesWebhooks: config.webhookSecret !== undefined}
  const server = createHttpServer(config, world)
  const metrics = createMetrics(tools, world)
  const findProblem = createReadiness(tools, world)
  server.addHook('onResponse', async (_request, reply) => metrics.countAnswer(reply.statusCode))
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

  const url = await listenAt(server, config)
  const listening = workbench.move()
  return {
    url,
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
