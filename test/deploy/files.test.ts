import {mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {parse, parseAllDocuments} from 'yaml'
import {createCli} from '../../src/cli/context.ts'
import {createProgram} from '../../src/cli/program.ts'
import {parseConfig} from '../../src/core/config.ts'
import {VERSION} from '../../src/core/process.ts'
import {topologyOf} from '../../src/export/clickhouse-layout.ts'
import {requireJob} from '../../src/schedule/job.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {createMetrics} from '../../src/web/metrics.ts'
import {NODE_URLS} from '../support/clickhouse-cluster.ts'
import {createFolder, createWorldAt} from '../support/data.ts'

const DEPLOY = join(import.meta.dirname, '../../deploy')
const files = readdirSync(DEPLOY, {recursive: true, encoding: 'utf8'}).filter((file) => /\.\w+$/.test(file))
const textOf = (file: string) => readFileSync(join(DEPLOY, file), 'utf8')
const read = <T>(file: string): T => parse(textOf(file), {merge: true}) as T

test.each(files)('%s can be read', (file) => {
  expect(file).toMatch(/\.(yaml|json)$/)
  if (file.endsWith('.json')) JSON.parse(textOf(file))
  else expect(parseAllDocuments(textOf(file), {merge: true}).flatMap(({errors}) => errors)).toEqual([])
})

test('every setting that a file names is one', () => {
  const named = new Set(files.flatMap((file) => textOf(file).match(/\bLOANTAPE_[A-Z_]+/g) ?? []))
  // Not a setting, but what one would be taken for: the manifest says so.
  named.delete('LOANTAPE_PORT')
  expect(named.size).toBeGreaterThan(6)
  const unknown = [...named].filter((name) => {
    try {
      parseConfig({[name]: 'x'}, {readFile: () => 'x'})
      return false
    } catch (error) {
      return String(error).includes('no such setting')
    }
  })
  expect(unknown).toEqual([])
})

/** The names of all metrics, as `/metrics` declares them. */
async function listMetrics(): Promise<Set<string>> {
  using data = createFolder()
  writeFileSync(data.folder.stateDb, '')
  using stateDb = openStateDb(':memory:')
  const config = parseConfig({}, {readFile: () => ''})
  const tools = {stateDb, folder: data.folder, jobs: [], config, takesWebhooks: true}
  const text = await createMetrics(tools, createWorldAt('2026-02-02T12:00:00Z')).render()
  return new Set([...text.matchAll(/^# TYPE (\S+) /gm)].map(([, name = '']) => name))
}

const rules = read<{groups: {rules: {alert: string; expr: string}[]}[]}>('prometheus/rules.yaml')
const dashboard = JSON.parse(textOf('grafana/dashboard.json')) as {panels: {targets: {expr: string}[]}[]}

test.each([
  ['rules', rules.groups.flatMap((group) => group.rules.map(({expr}) => expr))],
  ['dashboard', dashboard.panels.flatMap(({targets}) => targets.map(({expr}) => expr))],
])('every metric of the %s is exported', async (_, expressions) => {
  const exported = await listMetrics()
  const named = expressions.map((expr) => expr.match(/\bloantape_\w+/g) ?? [])
  expect(named.filter((names) => names.length === 0)).toEqual([])
  expect(named.flat().filter((name) => !exported.has(name))).toEqual([])
})

interface Service {
  image: string
  hostname: string
  environment: Record<string, string>
  ports?: string[]
}
interface Node {
  macros: Record<string, {'@from_env': string}>
  remote_servers: {loantape: {shard: {internal_replication: boolean; replica: {host: string}[]}[]}}
  zookeeper: {node: {host: string}[]}
}
const compose = read<{services: Record<string, Service>}>('clickhouse/compose.yaml')
const node = read<Node>('clickhouse/node.yaml')

test('the cluster has four nodes, each in its shard and under a name of its own', () => {
  const {shard: shards} = node.remote_servers.loantape
  expect(shards.map(({replica}) => replica.length)).toEqual([2, 2])
  expect(shards.every(({internal_replication}) => internal_replication)).toBe(true)
  const hosts = shards.flatMap(({replica}, index) =>
    replica.map(({host}) => [host, String(index + 1)] as const),
  )
  expect(hosts.map(([host]) => host)).toEqual(Object.keys(NODE_URLS))
  for (const [host, shard] of hosts)
    expect(compose.services[host]).toMatchObject({
      hostname: host,
      environment: {SHARD: shard, REPLICA: host},
      ports: [`${new URL(NODE_URLS[host as keyof typeof NODE_URLS]).host}:8123`],
    })
})

test('what the tables are named after in Keeper is known to every node', () => {
  const {engine} = topologyOf('loantape')
  const macros = new Set(`${engine('shards')} ${engine('everywhere')}`.match(/(?<=\{)\w+(?=\})/g))
  for (const own of ['uuid', 'database', 'table']) macros.delete(own)
  expect(Object.keys(node.macros)).toEqual(expect.arrayContaining([...macros]))
  for (const {'@from_env': name} of Object.values(node.macros))
    for (const host of Object.keys(NODE_URLS)) expect(compose.services[host]?.environment[name]).toBeDefined()
})

test('every Keeper is one of the quorum, and nodes ask all of them', () => {
  const {keeper_server} = read<{
    keeper_server: {raft_configuration: {server: {id: number; hostname: string}[]}}
  }>('clickhouse/keeper.yaml')
  const keepers = keeper_server.raft_configuration.server
  for (const {id, hostname} of keepers)
    expect(compose.services[hostname]).toMatchObject({hostname, environment: {KEEPER_ID: String(id)}})
  expect(node.zookeeper.node.map(({host}) => host)).toEqual(keepers.map(({hostname}) => hostname))
  expect(Object.keys(compose.services)).toHaveLength(keepers.length + Object.keys(NODE_URLS).length)
})

test('images have a version, and nothing listens but on loopback', () => {
  for (const {image, ports = []} of Object.values(compose.services)) {
    expect(image).toMatch(/^clickhouse\/clickhouse-(server|keeper):\d+\.\d+$/)
    for (const port of ports) expect(port).toMatch(/^127\.0\.0\.1:/)
  }
})

interface PodSpec {
  securityContext: object
  enableServiceLinks: boolean
  volumes: object[]
  containers: {
    image: string
    args: string[]
    env?: {name: string; value: string}[]
    securityContext: object
    volumeMounts: object[]
  }[]
}
type Labels = Record<string, string>
interface Template {
  metadata: {labels: Labels}
  spec: PodSpec
}
interface Manifest {
  kind: string
  metadata: {name: string}
  data: Record<string, string>
  spec: {
    accessModes: string[]
    replicas: number
    suspend: boolean
    schedule: string
    timeZone: string
    startingDeadlineSeconds: number
    template: Template
    jobTemplate: {spec: {activeDeadlineSeconds: number; template: Template}}
    selector: Labels | {matchLabels: Labels}
    ports: {name: string}[]
    tls: {hosts: string[]}[]
    rules: {host: string; http: {paths: {backend: {service: object}}[]}}[]
    podSelector: {matchLabels: Labels}
    policyTypes: string[]
    ingress: {from: {namespaceSelector?: object}[]; ports: {port: string}[]}[]
    egress: {ports: {port: number}[]}[]
  }
}
const manifests = parseAllDocuments(textOf('kubernetes/loantape.yaml')).map((one) => one.toJS() as Manifest)
const find = (kind: string, name?: string) =>
  manifests.find((one) => one.kind === kind && (name === undefined || one.metadata.name === name))!
const server = find('Deployment').spec
const cron = find('CronJob').spec
const pods = [server.template.spec, cron.jobTemplate.spec.template.spec]

let jobsDir: string
beforeAll(() => {
  jobsDir = mkdtempSync(join(tmpdir(), 'loantape-jobs-'))
  for (const [file, text] of Object.entries(find('ConfigMap', 'loantape-jobs').data))
    writeFileSync(join(jobsDir, file), text)
})
afterAll(() => rmSync(jobsDir, {recursive: true}))

test('what the pods run are commands', async () => {
  const quiet = {write: () => true}
  const program = await createProgram(
    createCli({env: {}, stdout: quiet, stderr: quiet, onStop: () => undefined}),
  )
  const commands = program.commands.map((command) => command.name())
  const runs = pods.map(({containers}) => containers[0]?.args ?? [])
  expect(runs).toEqual([['serve'], ['run', 'nightly']])
  expect(commands).toEqual(expect.arrayContaining(runs.map(([name]) => name)))
})

test('the cron job runs when the job it runs is due, as late and as long', async () => {
  const config = parseConfig({LOANTAPE_JOBS_DIR: jobsDir}, {readFile: () => ''})
  const job = await requireJob(config, 'nightly')
  expect(cron).toMatchObject({
    schedule: job.schedule,
    timeZone: job.timeZone,
    startingDeadlineSeconds: job.graceMinutes * 60,
    jobTemplate: {spec: {activeDeadlineSeconds: job.timeoutMinutes! * 60}},
  })
})

test('the settings of each pod are complete', () => {
  const {data} = find('ConfigMap', 'loantape-settings')
  for (const {containers} of pods) {
    const own = Object.fromEntries((containers[0]?.env ?? []).map(({name, value}) => [name, value]))
    const config = parseConfig({...data, ...own}, {readFile: () => 'a-secret-of-24-characters'})
    expect(config).toMatchObject({apiKey: 'a-secret-of-24-characters', tapeKeyFile: '/secrets/tape.key'})
    if (config.webHost !== '127.0.0.1') expect(config.webToken).toBeDefined()
  }
})

test('one pod at a time has the data, and either has the same rights', () => {
  expect(find('PersistentVolumeClaim').spec.accessModes).toEqual(['ReadWriteOncePod'])
  expect([server.replicas, cron.suspend]).toEqual([1, true])
  const [one, other] = pods.map(({securityContext, enableServiceLinks, volumes, containers}) => ({
    securityContext,
    enableServiceLinks,
    volumes,
    containers: containers.map(({image, securityContext, volumeMounts}) => ({
      image,
      securityContext,
      volumeMounts,
    })),
  }))
  expect(one).toEqual(other)
  expect(one).toMatchObject({
    enableServiceLinks: false,
    securityContext: {runAsNonRoot: true},
    containers: [{securityContext: {readOnlyRootFilesystem: true}}],
  })
  expect(one?.containers[0]?.image).toMatch(
    new RegExp(`:${VERSION.replaceAll('.', '\\.')}@sha256:[0-9a-f]{64}$`),
  )
})

test('nobody but the controller of the Ingress, which speaks TLS, and Prometheus reaches the server', () => {
  const {tls, rules} = find('Ingress').spec
  expect(tls.flatMap(({hosts}) => hosts)).toEqual(rules.map(({host}) => host))
  const service = find('Service')
  for (const {http} of rules)
    for (const {backend} of http.paths)
      expect(backend.service).toEqual({
        name: service.metadata.name,
        port: {name: service.spec.ports[0]?.name},
      })
  const {podSelector, policyTypes, ingress, egress} = find('NetworkPolicy').spec
  expect(policyTypes).toEqual(['Ingress', 'Egress'])
  // The policy is of every pod, the Service of the server's alone.
  const labels = [server, cron.jobTemplate.spec].map(({template}) => template.metadata.labels)
  expect(labels).toMatchObject([podSelector.matchLabels, podSelector.matchLabels])
  expect(labels.map((each) => isOf(service.spec.selector as Labels, each))).toEqual([true, false])
  expect(isOf((server.selector as {matchLabels: Labels}).matchLabels, labels[0] ?? {})).toBe(true)
  expect(ingress.flatMap(({from}) => from).every(({namespaceSelector}) => namespaceSelector)).toBe(true)
  expect(ingress.flatMap(({ports}) => ports).map(({port}) => port)).toEqual(['web'])
  expect(egress.flatMap(({ports}) => ports).map(({port}) => port)).toEqual([53, 53, 443])
})

const isOf = (selector: Labels, labels: Labels) =>
  Object.entries(selector).every(([name, value]) => labels[name] === value)
