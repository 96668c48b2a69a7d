import {statSync} from 'node:fs'
import {Counter, collectDefaultMetrics, Gauge, Registry} from 'prom-client'
import type {World} from '../core/types.ts'
import {sumJobRuns, sumSyncs} from '../store/runs.ts'
import {listSourceAnswers} from '../sync/at-source.ts'
import {readOverview, type WebTools} from './view.ts'

/** `prom-client` names gauges `…_total`, a counter's name: their sums by type stand beside them. */
function removeFalseCounters(registry: Registry): void {
  for (const {name, type} of registry.getMetricsAsArray()) {
    if (name.endsWith('_total') && String(type) !== 'counter') registry.removeSingleMetric(name)
  }
}

/** Creates what every web side measures of itself, and makes gauges beside it. */
export function createRegistry() {
  const registry = new Registry()
  collectDefaultMetrics({register: registry, prefix: 'loantape_'})
  removeFalseCounters(registry)
  const answers = new Counter({
    name: 'loantape_web_answers_total',
    help: 'Answers of the web side by HTTP status.',
    labelNames: ['status'],
    registers: [registry],
  })
  return {
    registry,
    gauge: <L extends string>(name: string, help: string, labelNames: L[] = []) =>
      new Gauge({name: `loantape_${name}`, help, labelNames, registers: [registry]}),
    /** Notes an answer of the web side. */
    countAnswer: (status: number) => answers.inc({status: String(status)}),
  }
}

/**
 * Creates the metrics. Walks and exports run in processes of their own, so that their figures are read from the state database
 * when they are asked for; they go on where they were after a restart.
 */
export function createMetrics(tools: WebTools, world: World) {
  const {registry, gauge, countAnswer} = createRegistry()
  const lastSuccessAge = gauge('last_success_age_seconds', 'Since the last sync that ended well.')
  const lastWalk = gauge('last_walk', 'Of the last sync that ended well: pages, records, quarantined.', [
    'what',
  ])
  const lastSeconds = gauge('last_sync_seconds', 'How long it took, and how long it waited for limits.', [
    'what',
  ])
  const changes = gauge('last_changes', 'Deals the last sync changed, by kind.', ['kind'])
  const syncTotals = new Counter({
    name: 'loantape_sync_total',
    help: 'Over all syncs: pages, records, changes, quarantined.',
    labelNames: ['what'],
    registers: [registry],
  })
  const checks = gauge('release_checks', 'Checks of the current release.', ['result'])
  const releaseAge = gauge('release_age_seconds', 'Since what the current release tells was recorded.')
  const releaseRows = gauge('release_rows', 'Rows of the current release.', ['table'])
  const slotLag = gauge('slot_lag_seconds', 'Between slot and start of the last run of each job.', ['job'])
  const sourceAnswers = gauge('source_answers', 'Answers of the source by HTTP status, over all runs.', [
    'status',
  ])
  const jobRuns = gauge('job_runs', 'Runs the state database holds, by job and state.', ['job', 'state'])
  const exportBytes = gauge('last_export_bytes', 'Bytes of the batches of the last run of each job.', ['job'])
  const missed = gauge('webhook_missed_changes', 'Changes the last walk found that no webhook had told of.')
  const queued = gauge('queued_runs', 'Runs that wait for their turn.')
  const alarms = gauge('alarm', '1 for each alarm that is raised.', ['name', 'state'])
  const stateBytes = gauge('state_bytes', 'Size of state.sqlite.')

  function collect(): void {
    const overview = readOverview(tools, world)
    const {now, lastSync, release} = overview
    // A gauge without labels would report 0, so unknown values are left out.
    for (const one of [lastSuccessAge, releaseAge, missed]) one.remove()
    for (const one of [changes, releaseRows, slotLag, exportBytes, jobRuns, alarms]) one.reset()
    if (lastSync) {
      lastSuccessAge.set((now - lastSync.endedAt) / 1000)
      const {pages, records, quarantined} = lastSync.walk
      for (const [what, sum] of Object.entries({pages, records, quarantined})) lastWalk.set({what}, sum)
      lastSeconds.set({what: 'duration'}, lastSync.duration_ms / 1000)
      lastSeconds.set({what: 'waited'}, lastSync.waited_ms / 1000)
      for (const [kind, count] of Object.entries(lastSync.changes)) changes.set({kind}, count)
    }
    syncTotals.reset()
    for (const [what, sum] of Object.entries(sumSyncs(tools.stateDb))) syncTotals.inc({what}, sum)
    if (release) {
      checks.set({result: 'passed'}, release.checks.passed)
      checks.set({result: 'warned'}, release.checks.warned)
      releaseAge.set((now - Date.parse(release.known_at)) / 1000)
      for (const {name, rows} of release.tables) releaseRows.set({table: name}, rows)
    }
    for (const {status, answers: times} of listSourceAnswers(tools.stateDb)) {
      sourceAnswers.set({status: String(status)}, times)
    }
    const totals = sumJobRuns(tools.stateDb)
    for (const {job, state, runs} of totals.runs) jobRuns.set({job, state}, runs)
    for (const {job, lag_seconds, bytes} of totals.last) {
      slotLag.set({job}, lag_seconds)
      exportBytes.set({job}, bytes)
    }
    if (overview.coverage) missed.set(overview.coverage.missed)
    queued.set(overview.queued.length)
    for (const {name, state} of overview.alarms) alarms.set({name, state}, 1)
    stateBytes.set(statSync(tools.folder.stateDb).size)
  }

  return {
    contentType: registry.contentType,
    countAnswer,
    /** Text in the Prometheus format. */
    render() {
      collect()
      return registry.metrics()
    },
  }
}
