import type {Config} from '../config.ts'
import type {World} from '../types.ts'
import {renderFleet, type SourceRow} from './fleet-page.ts'
import {createHttpServer, listenAt, type WebSide} from './http-server.ts'
import {createRegistry} from './metrics.ts'

/**
 * Serves the page, the probe and the metrics of a fleet.
 *
 * @param readRows how each source is doing now
 * @throws ConfigError `WEB_TOKEN_MISSING`, `WEB_ADDRESS`
 */
export async function startFleetWeb(
  config: Config,
  readRows: () => readonly SourceRow[],
  world: World,
): Promise<WebSide> {
  const server = createHttpServer(config, world)
  const metrics = createFleetMetrics(world)
  server.addHook('onResponse', async (_request, reply) => metrics.countAnswer(reply.statusCode))
  server.get('/', async (_request, reply) =>
    reply.type('text/html; charset=utf-8').send(renderFleet(readRows(), world.realClock.now())),
  )
  server.get('/metrics', async (_request, reply) =>
    reply.type(metrics.contentType).send(await metrics.render(readRows())),
  )
  const url = await listenAt(server, config)
  return {url, [Symbol.asyncDispose]: () => server.close()}
}

function createFleetMetrics({realClock}: World) {
  const {registry, gauge, countAnswer} = createRegistry()
  const healthy = gauge('source_healthy', '1 for a source whose last success is recent, else 0.', ['source'])
  const broken = gauge('source_error', '1 for a source that cannot be read or run.', ['source', 'code'])
  const successAge = gauge('last_success_age_seconds', 'Since the last sync that ended well.', ['source'])
  const releaseAge = gauge('release_age_seconds', 'Since what the current release tells was recorded.', [
    'source',
  ])
  const deals = gauge('release_deals', 'Present deals of the current release.', ['source'])
  const running = gauge('source_running', '1 for a source with a run under way, else 0.', ['source'])
  const alarms = gauge('alarm', '1 for each alarm that is raised.', ['source', 'name', 'state'])
  const all = [healthy, broken, successAge, releaseAge, deals, running, alarms]

  function collect(rows: readonly SourceRow[]): void {
    const now = realClock.now()
    for (const one of all) one.reset()
    for (const {source, error, last_success, release, ...row} of rows) {
      healthy.set({source}, row.healthy ? 1 : 0)
      running.set({source}, row.running === null ? 0 : 1)
      if (error) broken.set({source, code: error.code}, 1)
      if (last_success) successAge.set({source}, (now - Date.parse(last_success.ended_at)) / 1000)
      if (release) {
        releaseAge.set({source}, (now - Date.parse(release.known_at)) / 1000)
        deals.set({source}, release.deals)
      }
      for (const {name, state} of row.alarms) alarms.set({source, name, state}, 1)
    }
  }

  return {
    contentType: registry.contentType,
    countAnswer,
    /** Text in the Prometheus format. */
    render(rows: readonly SourceRow[]) {
      collect(rows)
      return registry.metrics()
    },
  }
}
