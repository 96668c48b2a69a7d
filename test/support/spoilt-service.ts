import type {FastifyRequest} from 'fastify'
import {realClock} from '../../src/core/clock.ts'
import {PREFIX} from '../../src/service/requests.ts'
import {type RunningService, type ServiceOptions, startService} from '../../src/service/server.ts'
import {addFaultHooks} from './fault-hooks.ts'
import {createFaultBook, type Faults} from './faults.ts'

/** One request the service received. */
interface LoggedRequest {
  method: string
  /** With the query, relative to the base URL: `/deals?limit=100`. */
  path: string
  /** Real time, ms since the epoch. */
  at: number
}

/** A local service whose answers can be spoilt, and which logs its requests. */
export interface SpoiltService extends RunningService {
  faults: Faults
  /** The requests since the start or the last clear, oldest first. */
  requests: {readonly count: number; readonly entries: readonly LoggedRequest[]; clear(): void}
}

/** The path relative to the base URL, with the query. */
function pathOf({url}: FastifyRequest): string {
  return url.startsWith(`${PREFIX}/`) ? url.slice(PREFIX.length) : url
}

/** Starts a local service; without faults it answers normally. */
export async function startSpoiltService(options: ServiceOptions): Promise<SpoiltService> {
  const faults = createFaultBook()
  let entries: LoggedRequest[] = []
  const service = await startService({
    ...options,
    extend(app, database) {
      app.addHook('onRequest', async (request) => {
        entries.push({method: request.method, path: pathOf(request), at: realClock.now()})
      })
      addFaultHooks(app, faults, {database, pathOf})
    },
  })
  const requests = {
    get count() {
      return entries.length
    },
    get entries() {
      return entries
    },
    clear: () => {
      entries = []
    },
  }
  return {...service, faults, requests}
}
