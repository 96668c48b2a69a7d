import {DatabaseSync} from 'node:sqlite'
import type {Config} from '../core/config.ts'
import type {World} from '../core/types.ts'
import {type Alarm, wasClockAhead} from '../schedule/alarms.ts'
import {html} from './html.ts'
import {FLEET_PLACES, sendPage, startServer} from './http-server.ts'
import {addMetrics, createRegistry} from './metrics.ts'
import {renderWorkbench} from './page-frame.ts'
import {viewState} from './pages.ts'

/** The state of one source of a fleet, or why it is unknown. */
export interface SourceRow {
  source: string
  healthy: boolean
  /** Whether nearly all of its deals have a status with a class. */
  is_classified: boolean
  error: {code: string; message: string} | null
  last_success: {ended_at: string; age_hours: number} | null
  release: {as_of: string; known_at: string; deals: number; amount: string} | null
  /** Job and progress of the current run. */
  running: string | null
  alarms: readonly Alarm[]
  next_slot: {job: string; slot: string} | null
}

const CLASSES = {
  broken: 'failed',
  'no success': 'failed',
  'clock ahead': 'failed',
  'no release': 'failed',
  'too old': 'failed',
  unclassified: 'failed',
  alarm: 'warned',
  healthy: 'passed',
}

/** The state of a source in a word or two. */
export function stateOf(row: SourceRow): keyof typeof CLASSES {
  if (row.error) return 'broken'
  if (!row.is_classified) return 'unclassified'
  if (wasClockAhead(row)) return 'clock ahead'
  if (!row.last_success) return 'no success'
  if (!row.release) return 'no release'
  if (!row.healthy) return 'too old'
  return row.alarms.length > 0 ? 'alarm' : 'healthy'
}

const ORDER = Object.keys(CLASSES)

/** Sorts sources that need attention to the top. */
export function sortSources(rows: readonly SourceRow[]): SourceRow[] {
  return rows.toSorted(
    (a, b) => ORDER.indexOf(stateOf(a)) - ORDER.indexOf(stateOf(b)) || a.source.localeCompare(b.source),
  )
}

/** The page of a fleet. @param now ms since the epoch */
export async function renderFleet(rows: readonly SourceRow[], now: number): Promise<string> {
  using db = new DatabaseSync(':memory:')
  const sources = sortSources(rows).map((row) => ({...row, state: stateOf(row), tone: CLASSES[stateOf(row)]}))
  const params = {sources, now: new Date(now).toISOString(), now_ms: now}
  const page = await viewState('state/fleet', {stateDb: {db}, params})
  return renderWorkbench({
    title: 'Fleet',
    path: '/',
    places: FLEET_PLACES,
    alarms: rows.filter(({healthy}) => !healthy).length,
    body: html`${page?.body}`,
  })
}

/**
 * Serves the page, the probe and the metrics of a fleet.
 *
 * @param readRows returns the state of each source
 * @throws ConfigError `WEB_TOKEN_MISSING`, `WEB_ADDRESS`
 */
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
