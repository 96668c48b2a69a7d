import {readFileSync, statSync} from 'node:fs'
import {join} from 'node:path'
import type {FastifyInstance} from 'fastify'
import {Counter, collectDefaultMetrics, Gauge, Registry} from 'prom-client'
import type {World} from '../core/types.ts'
import type {StateDb} from '../store/state-db.ts'
import {SHIPPED} from './page-files.ts'
import {type Params, textsOf} from './pages.ts'
import {readOverview, type View, type WebTools} from './view.ts'

type MayRead = View['mayRead']

/** `-- name: what it is`, then a SELECT of its labels and its `value`. */
const METRIC = /^-- (\w+): (.+)\n([^;]+);/gm

/**
 * Process metrics, and those of a file: counters if named `…_total`, otherwise gauges. They are read from the database on each
 * request, so that they continue after a restart; null values are left out. `read` returns the parameters of their SQL.
 */
export function createRegistry(
  file: string,
  stateDb: Pick<StateDb, 'db'>,
  read: (mayRead: MayRead) => Params,
) {
  const registry = new Registry()
  collectDefaultMetrics({register: registry, prefix: 'loantape_'})
  // The library exports gauges named `…_total`, a counter's name; the same numbers by type stand beside them.
  for (const {name, type} of registry.getMetricsAsArray())
    if (name.endsWith('_total') && String(type) !== 'counter') registry.removeSingleMetric(name)
  const answers = new Counter({
    name: 'loantape_web_answers_total',
    help: 'Answers of the web side by HTTP status.',
    labelNames: ['status'],
    registers: [registry],
  })
  const metrics = [...readFileSync(join(SHIPPED, `${file}.sql`), 'utf8').matchAll(METRIC)]
  return {
    registry,
    answers,
    render(mayRead: MayRead) {
      const given = textsOf(read(mayRead))
      const ofFile = new Registry()
      for (const [, name = '', help = '', sql = ''] of metrics) {
        // Prepared anew: the database may have been reopened.
        const statement = stateDb.db.prepare(sql)
        statement.setAllowUnknownNamedParameters(true)
        const labelNames = statement.columns().flatMap(({name}) => (name === 'value' ? [] : [name]))
        const Metric = name.endsWith('_total') ? Counter : Gauge
        const metric = new Metric({name: `loantape_${name}`, help, labelNames, registers: [ofFile]})
        // Without labels, it begins with the value 0.
        if (labelNames.length === 0) metric.remove()
        for (const {value, ...labels} of statement.all(given))
          if (value !== null) metric.inc(labels as Record<string, string>, Number(value))
      }
      return Registry.merge([registry, ofFile]).metrics()
    },
  }
}

export function addMetrics(
  server: FastifyInstance,
  {registry, answers, render}: ReturnType<typeof createRegistry>,
): void {
  server.addHook('onResponse', async (_request, {statusCode}) => answers.inc({status: String(statusCode)}))
  server.get('/metrics', async ({caller}, reply) =>
    reply.type(registry.contentType).send(await render(caller.mayRead)),
  )
}

/** Walks and exports run in other processes, so all are read from the state database. */
export function createMetrics(tools: WebTools, world: World) {
  const {stateDb, folder, config} = tools
  return createRegistry('metrics', stateDb, (mayRead) => {
    const {now, alarms, release: whole} = readOverview(tools, world)
    const release = whole && {...whole, tables: whole.tables.filter(({name}) => mayRead(name))}
    const takes_webhooks = config.webhookSecret && 1
    const state_bytes = statSync(folder.stateDb).size
    return {now_ms: now, alarms, release, takes_webhooks, state_bytes}
  })
}
