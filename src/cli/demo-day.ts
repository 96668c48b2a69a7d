import {createDealClient} from '../client/deal-client.ts'
import {sleepUntilStopped} from '../clock.ts'
import type {Config} from '../config.ts'
import type {EventsResult} from '../pipeline/events.ts'
import {applyEvents} from '../pipeline.ts'
import {drawEdits} from '../service/advance-day.ts'
import type {RunningService} from '../service/server.ts'
import type {StateDb} from '../state/state-db.ts'
import {listWaitingEvents} from '../state/webhook-events.ts'
import type {World} from '../types.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'

/** Deals that people change between two nights. */
const EDITS = 12
/** What has not arrived by then is applied after the next day: nothing waits for it. */
const LONGEST_WAIT_MS = 30_000

/** Starts a receiver of the demo's own service, the web side that `serve` starts, and registers it there. */
export async function startReceiver(
  config: Config & {baseUrl: string; apiKey: string},
  {service, stateDb, folder}: {service: RunningService; stateDb: StateDb; folder: DataFolder},
  world: World,
) {
  const client = createDealClient(config)
  // The secret comes with the registration and is needed to listen; where that is, is known only then.
  const endpoint = await client.webhookEndpoints.create({url: service.url, events: ['deal.updated']})
  const webConfig = {...config, webHost: '127.0.0.1', webPort: 0, webhookSecret: endpoint.secret}
  // Loaded here: no other command needs a web server.
  const {startWeb} = await import('../web/web-server.ts')
  const web = await startWeb(webConfig, {stateDb, folder, jobs: []}, world)
  await client.webhookEndpoints.update(endpoint.id, {url: `${web.url}/webhooks/deals`})
  return {
    /**
     * Has people change some deals through the API, and applies what the webhooks of that say; the same seed and day
     * change the same.
     */
    async passDay(options: {seed: string; day: string}, dayWorld: World): Promise<EventsResult> {
      const edits = drawEdits(service.store, {...options, count: EDITS})
      for (const {id, changes} of edits) await client.deals.update(id, changes)
      await awaitEvents(stateDb, edits.length, dayWorld)
      return applyEvents(config, dayWorld)
    },
    [Symbol.asyncDispose]: () => web[Symbol.asyncDispose](),
  }
}

async function awaitEvents(stateDb: StateDb, count: number, {realClock, signal}: World): Promise<void> {
  const deadline = realClock.now() + LONGEST_WAIT_MS
  while (listWaitingEvents(stateDb).length < count && realClock.now() < deadline && !signal.aborted) {
    await sleepUntilStopped(realClock, 10, signal)
  }
}
