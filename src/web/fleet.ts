import {DatabaseSync} from 'node:sqlite'
import type {Config} from '../core/config.ts'
import {explainError} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import type {World} from '../core/types.ts'
import {listRunning} from '../schedule/job-runs.ts'
import {readStanding} from '../schedule/standing.ts'
import type {Source} from '../schedule/supervisor.ts'
import type {StateDb} from '../store/state-db.ts'
import {html} from './html.ts'
import {FLEET_PLACES, sendPage, startServer} from './http-server.ts'
import {addMetrics, createRegistry} from './metrics.ts'
import {renderWorkbench} from './page-frame.ts'
import {viewState} from './pages.ts'

export type SourceRow = ReturnType<typeof readRow>

export function readRow(source: string, read: () => ReturnType<typeof readState>) {
  try {
    return {source, error: null, ...read()}
  } catch (thrown) {
    const {code, message} = explainError(thrown)
    const error = {code, message: scrubSecrets(message)}
    const unknown = {last_success: null, release: null, running: null, alarms: [], next_slot: null}
    return {source, error, state: 'broken' as const, healthy: false, is_classified: true, ...unknown}
  }
}

/** Opens no warehouse. `maxAgeHours` as of `readStanding`. */
export function readState(source: Source, stateDb: StateDb, world: World, maxAgeHours?: number) {
  const standing = readStanding(source, stateDb, world, maxAgeHours)
  const {now, state, healthy, is_classified, last_success, alarms, release, holder, next_slots} = standing
  const live = listRunning(stateDb, now).find(({isAlive}) => isAlive)
  const running = [live?.job ?? holder?.command, holder?.progress].filter((part) => part !== undefined)
  return {
    state,
    healthy,
    is_classified,
    last_success,
    release: release ? {as_of: release.as_of, known_at: release.known_at, ...release.source.present} : null,
    running: running.join(': ') || null,
    alarms,
    next_slot: next_slots[0] ?? null,
  }
}

/** The worst comes first. */
const ORDER = 'broken|no success|clock ahead|no release|too old|unclassified|alarm|healthy'.split('|')

export function sortSources(rows: readonly SourceRow[]): SourceRow[] {
  return rows.toSorted(
    (a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || a.source.localeCompare(b.source),
  )
}

/** `now` is ms since the epoch. */
export async function renderFleet(rows: readonly SourceRow[], now: number): Promise<string> {
  using db = new DatabaseSync(':memory:')
  const params = {sources: sortSources(rows), now: new Date(now).toISOString(), now_ms: now}
  const page = await viewState('state/fleet', {stateDb: {db}, params})
  return renderWorkbench({
    title: 'Fleet',
    path: '/',
    places: FLEET_PLACES,
    alarms: rows.filter(({healthy}) => !healthy).length,
    body: html`${page?.body}`,
  })
}

/** @throws ConfigError `WEB_TOKEN_MISSING`; UnexpectedError `WEB_ADDRESS` */
export function startFleetWeb(config: Config, readRows: () => readonly SourceRow[], world: World) {
  const {realClock} = world
  // The fleet page shows no tables.
  return startServer({...config, viewerTables: undefined}, world, (server) => {
    const db = new DatabaseSync(':memory:')
    const read = () => ({sources: readRows(), now_ms: realClock.now()})
    addMetrics(server, createRegistry('fleet-metrics', {db}, read))
    server.get('/', async (_request, reply) =>
      sendPage(reply, await renderFleet(readRows(), realClock.now())),
    )
    return db
  })
}
