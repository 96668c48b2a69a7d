import type {FastifyRequest} from 'fastify'
import {realClock} from '../../src/core/clock.ts'
import {PREFIX} from '../../src/service/requests.ts'
import {type RunningService, type ServiceOptions, startService} from '../../src/service/server.ts'
import {addFaultHooks} from './fault-hooks.ts'
import {createFaultBook, type Faults} from './faults.ts'
import {createRequestLog, type RequestLog} from './request-log.ts'

/** A local service whose answers can be spoilt, and which logs its requests. */
export interface SpoiltService extends RunningService {
  faults: Faults
  requests: RequestLog
}

/** The path relative to the base URL, with the query. */
function pathOf({url}: FastifyRequest): string {
  return url.startsWith(`${PREFIX}/`) ? url.slice(PREFIX.length) : url
}

/** Starts a local service; without faults it answers normally. */
export async function startSpoiltService(options: ServiceOptions): Promise<SpoiltService> {
  const faults = createFaultBook()
  const requests = createRequestLog()
  const service = await startService({
    ...options,
    extend(app, database) {
      app.addHook('onRequest', async (request) => {
        requests.add({method: request.method, path: pathOf(request), at: realClock.now()})
      })
      addFaultHooks(app, faults, {database, pathOf})
    },
  })
  return {...service, faults, requests}
}
