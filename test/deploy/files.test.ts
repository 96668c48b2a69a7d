import {readdirSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {expect, test} from 'vitest'
import {parse, parseAllDocuments} from 'yaml'
import {listSettings} from '../../scripts/config-docs.ts'
import {COMMANDS} from '../../src/cli/program.ts'
import {parseConfig} from '../../src/core/config.ts'
import {VERSION} from '../../src/core/process.ts'
import {topologyOf} from '../../src/export/clickhouse-layout.ts'
import {requireJob} from '../../src/schedule/job.ts'
import {MOST_SPILLED} from '../../src/store/release.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {createMetrics, createRegistry} from '../../src/web/metrics.ts'
import {SHIPPED} from '../../src/web/page-files.ts'
import {NODE_URLS} from '../support/clickhouse-cluster.ts'
import {createFolder, createWorldAt} from '../support/data.ts'

const DEPLOY = join(import.meta.dirname, '../../deploy')
const files = readdirSync(DEPLOY, {recursive: true, encoding: 'utf8'}).filter((file) => /\.\w+$/.test(file))
const textOf = (file: string) => readFileSync(join(DEPLOY, file), 'utf8')
/** The parsed content of a file; the tests know its shape. */
type Tree = {readonly [name: string]: Tree} & Iterable<Tree>
const read = (file: string): Tree => parse(textOf(file), {merge: true}) as Tree
const textsOf = (list: Iterable<Tree>) => [...list].map(String)

test('every file can be read', () => {
  for (const file of files) {
    expect(file).toMatch(/\.(yaml|json)$/)
    if (file.endsWith('.json')) JSON.parse(textOf(file))
    else
      expect(
        parseAllDocuments(textOf(file), {merge: true}).flatMap(({errors}) => errors),
        file,
      ).toEqual([])
  }
})

test('every setting that a file names exists', () => {
  const named = new Set(files.flatMap((file) => textOf(file).match(/\bLOANTAPE_[A-Z_]+/g) ?? []))
  // Kubernetes sets this variable; it is not a setting.
  named.delete('LOANTAPE_PORT')
  expect(named.size).toBeGreaterThan(6)
  const known = new Set(listSettings().map(({env}) => env))
  expect([...named].filter((name) => !known.has(name.replace(/_FILE$/, '')) && !known.has(name))).toEqual([])
})

const [rules, dashboard] = [read('prometheus/rules.yaml'), read('grafana/dashboard.json')]

test('every metric of rules and dashboard is exported', async () => {
  using data = createFolder()
  writeFileSync(data.folder.stateDb, '')
  using stateDb = openStateDb(':memory:')
  const config = parseConfig({}, {readFile: () => ''})
  const tools = {stateDb, folder: data.folder, listJobs: () => [], config, takesWebhooks: true}
  const metrics = createMetrics(tools, createWorldAt('2026-02-02T12:00:00Z'))
  using db = new DatabaseSync(':memory:')
  const ofFleet = createRegistry('fleet-metrics', {db}, () => ({sources: [], now_ms: 0}))
  const [text, fleetText] = await Promise.all([metrics.render(() => true), ofFleet.render(() => true)])
  const exported = new Set(
    [...`${text}\n${fleetText}`.matchAll(/^# TYPE (\S+) /gm)].map(([, name = '']) => name),
  )
  const expressions = [
    ...[...rules!.groups!].flatMap((group) => [...group.rules!].map(({expr}) => String(expr))),
    ...[...dashboard!.panels!].flatMap(({targets}) => [...targets!].map(({expr}) => String(expr))),
  ]
  const named = expressions.map((expr) => expr.match(/\bloantape_\w+/g) ?? [])
  expect(named.filter((names) => names.length === 0)).toEqual([])
  expect(named.flat().filter((name) => !exported.has(name))).toEqual([])
})

test('every alert over a metric of a fleet names the lender', () => {
  const text = readFileSync(join(SHIPPED, 'fleet-metrics.sql'), 'utf8')
  const ofLenders = [...text.matchAll(/^-- (\w+): /gm)].map(([, name]) => `loantape_${name}`)
  const alerts = [...rules!.groups!].flatMap((group) => [...group.rules!])
  const told = alerts.filter(({expr}) =>
    ofLenders.some((name) => new RegExp(`^${name}\\b`).test(String(expr))),
  )
  expect(told.map(({alert}) => alert)).toContain('LoantapeSourceUnhealthy')
  for (const {annotations} of told) expect(annotations!.summary).toContain('{{ $labels.source }}')
})

const compose = read('clickhouse/compose.yaml').services!
const node = read('clickhouse/node.yaml')

test('the cluster has four nodes, each in its shard and under its own name', () => {
  const shards = [...node.remote_servers!.loantape!.shard!]
  expect(shards).toMatchObject(Array(2).fill({internal_replication: true, replica: [{}, {}]}))
  const hosts = shards.flatMap(({replica}, index) =>
    [...replica!].map(({host}) => [String(host), String(index + 1)] as const),
  )
  expect(hosts.map(([host]) => host)).toEqual(Object.keys(NODE_URLS))
  for (const [host, shard] of hosts)
    expect(compose[host]).toMatchObject({
      hostname: host,
      environment: {SHARD: shard, REPLICA: host},
      ports: [`${new URL(NODE_URLS[host as keyof typeof NODE_URLS]).host}:8123`],
    })
})

test("every node knows the macros in the tables' Keeper paths", () => {
  const {engine} = topologyOf('loantape')
  const macros = new Set(`${engine('shards')} ${engine('everywhere')}`.match(/(?<=\{)\w+(?=\})/g))
  for (const own of ['uuid', 'database', 'table']) macros.delete(own)
  expect(Object.keys(node.macros!)).toEqual(expect.arrayContaining([...macros]))
  for (const {'@from_env': name} of Object.values(node.macros!))
    for (const host of Object.keys(NODE_URLS))
      expect(compose[host]?.environment?.[String(name)]).toBeDefined()
})

test('every Keeper belongs to the quorum, and nodes ask all of them', () => {
  const keepers = [...read('clickhouse/keeper.yaml').keeper_server!.raft_configuration!.server!]
  for (const {id, hostname} of keepers)
    expect(compose[String(hostname)]).toMatchObject({hostname, environment: {KEEPER_ID: String(id)}})
  const asked = [...node.zookeeper!.node!].map(({host}) => host)
  expect(asked).toEqual(keepers.map(({hostname}) => hostname))
  expect(Object.keys(compose)).toHaveLength(keepers.length + Object.keys(NODE_URLS).length)
})

test('images have a version, and everything listens only on loopback', () => {
  for (const {image, ports} of Object.values(compose)) {
    expect(image).toMatch(/^clickhouse\/clickhouse-(server|keeper):\d+\.\d+$/)
    for (const port of ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:/)
  }
})

const manifests = parseAllDocuments(textOf('kubernetes/loantape.yaml')).map((one) => one.toJS() as Tree)
const find = (kind: string, name?: string) =>
  manifests.find((one) => String(one.kind) === kind && (name ?? one.metadata!.name) === one.metadata!.name)!
const [server, cron] = [find('Deployment').spec!, find('CronJob').spec!]
const templates = [server.template!, cron.jobTemplate!.spec!.template!]
const pods = templates.map(({spec}) => spec!)
const containerOf = (pod: Tree) => [...pod.containers!][0]!

test('the pods run existing commands, the cron job when its job is due, with the same grace and time limit', async () => {
  const runs = pods.map((pod) => textsOf(containerOf(pod).args!))
  expect(runs).toEqual([['serve'], ['run', 'nightly']])
  expect(Object.keys(COMMANDS)).toEqual(expect.arrayContaining(runs.map(([name]) => name)))
  using data = createFolder()
  const {root: jobsDir} = data.folder
  for (const [file, text] of Object.entries(find('ConfigMap', 'loantape-jobs').data!))
    writeFileSync(join(jobsDir, file), String(text))
  const config = parseConfig({LOANTAPE_JOBS_DIR: jobsDir}, {readFile: () => ''})
  const job = requireJob(config, 'nightly')
  expect(cron).toMatchObject({
    schedule: job.schedule,
    timeZone: job.timeZone,
    startingDeadlineSeconds: job.graceMinutes * 60,
    jobTemplate: {spec: {activeDeadlineSeconds: job.timeoutMinutes * 60}},
  })
})

test('what people ask and download at once fits into the folder of temporary files, beyond which a pod is evicted', () => {
  const folders = pods.map(({volumes}) => [...volumes!].find(({name}) => String(name) === 'tmp'))
  const gigabytes = folders.map((folder) => Number.parseInt(String(folder?.emptyDir?.sizeLimit), 10))
  expect(folders.map((folder) => String(folder?.emptyDir?.sizeLimit))).toEqual(
    gigabytes.map((gb) => `${gb}Gi`),
  )
  expect(Math.min(...gigabytes)).toBeGreaterThanOrEqual(3 * Number.parseInt(MOST_SPILLED, 10))
})

test('the settings of each pod are complete', () => {
  const {data} = find('ConfigMap', 'loantape-settings')
  for (const pod of pods) {
    const own = [...(containerOf(pod).env ?? [])].map(({name, value}) => [String(name), String(value)])
    const config = parseConfig(
      {...(data as object), ...Object.fromEntries(own)},
      {readFile: () => 'a-secret-of-24-characters'},
    )
    expect(config).toMatchObject({apiKey: 'a-secret-of-24-characters', tapeKeyFile: '/secrets/tape.key'})
    if (config.webHost !== '127.0.0.1') expect(config.webToken).toBeDefined()
  }
})

test('one pod at a time has the data, and both have the same rights', () => {
  expect(find('PersistentVolumeClaim').spec!.accessModes).toEqual(['ReadWriteOncePod'])
  expect([server.replicas, cron.suspend]).toEqual([1, true])
  const [one, other] = pods.map((pod) => {
    const {securityContext, enableServiceLinks, volumes} = pod
    const {image, securityContext: own, volumeMounts} = containerOf(pod)
    return {securityContext, enableServiceLinks, volumes, image, own, volumeMounts}
  })
  expect(one).toEqual(other)
  expect(one).toMatchObject({
    enableServiceLinks: false,
    securityContext: {runAsNonRoot: true},
    own: {readOnlyRootFilesystem: true},
  })
  expect(one?.image).toMatch(new RegExp(`:${VERSION.replaceAll('.', '\\.')}@sha256:[0-9a-f]{64}$`))
})

test('only the Ingress controller, which speaks TLS, and Prometheus reach the server', () => {
  const {tls, rules} = find('Ingress').spec!
  expect([...tls!].flatMap(({hosts}) => textsOf(hosts!))).toEqual([...rules!].map(({host}) => host))
  const service = find('Service')
  const backend = {name: service.metadata!.name, port: {name: [...service.spec!.ports!][0]?.name}}
  for (const {http} of rules!) for (const path of http!.paths!) expect(path.backend!.service).toEqual(backend)
  const {podSelector, policyTypes, ingress, egress} = find('NetworkPolicy').spec!
  expect(policyTypes).toEqual(['Ingress', 'Egress'])
  // The policy selects every pod, the Service only the server's.
  const labels = templates.map(({metadata}) => metadata!.labels!)
  expect(labels).toMatchObject([podSelector!.matchLabels, podSelector!.matchLabels])
  expect(labels.map((each) => isOf(service.spec!.selector!, each))).toEqual([true, false])
  expect(isOf(server.selector!.matchLabels!, labels[0]!)).toBe(true)
  const each = (list: Tree, name: string) => [...list].flatMap((one) => [...one[name]!])
  expect(each(ingress!, 'from').every(({namespaceSelector}) => namespaceSelector)).toBe(true)
  expect(each(ingress!, 'ports').map(({port}) => port)).toEqual(['web'])
  expect(each(egress!, 'ports').map(({port}) => port)).toEqual([53, 53, 443])
})

const isOf = (selector: Tree, labels: Tree) =>
  Object.entries(selector).every(([name, value]) => labels[name] === value)
