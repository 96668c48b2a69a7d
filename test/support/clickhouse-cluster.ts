import {execFile} from 'node:child_process'
import {randomBytes} from 'node:crypto'
import {join} from 'node:path'
import {promisify} from 'node:util'
import {openSession} from '../../src/export/clickhouse-layout.ts'
import {anyRow} from './data.ts'

const COMPOSE = join(import.meta.dirname, '../../deploy/clickhouse/compose.yaml')

/** The nodes of `deploy/clickhouse/compose.yaml` and their addresses. */
export const NODE_URLS = {
  'node-1-1': 'http://127.0.0.1:8123',
  'node-1-2': 'http://127.0.0.1:8124',
  'node-2-1': 'http://127.0.0.1:8125',
  'node-2-2': 'http://127.0.0.1:8126',
}
export type NodeName = keyof typeof NODE_URLS
export const NODES = Object.keys(NODE_URLS) as NodeName[]

const run = promisify(execFile)

/**
 * Starts an empty cluster with Docker Compose; disposing it removes its data.
 * @throws Error without Docker and its compose plugin
 */
export async function startClickhouseCluster() {
  const passwords = {loantape: randomBytes(12).toString('hex'), reader: randomBytes(12).toString('hex')}
  const env = {
    ...process.env,
    CLUSTER_SECRET: randomBytes(12).toString('hex'),
    LOANTAPE_CLICKHOUSE_PASSWORD: passwords.loantape,
    READER_PASSWORD: passwords.reader,
  }
  const compose = (...args: string[]) =>
    run('docker', ['compose', '--project-name', 'loantape-cluster-test', '--file', COMPOSE, ...args], {env})
  const end = async () => {
    await compose('down', '--volumes', '--timeout', '5')
  }
  await requireDocker()
  try {
    await compose('up', '--detach', '--wait')
  } catch (cause) {
    await end()
    throw new Error('The cluster of deploy/clickhouse/compose.yaml did not start.', {cause})
  }
  const ask = async (node: NodeName, user: keyof typeof passwords, sql: string) => {
    await using session = openSession(
      {url: NODE_URLS[node], user, password: passwords[user]},
      new AbortController().signal,
    )
    return await session.rows(anyRow, sql)
  }
  return {
    requestOf: (node: NodeName) => ({
      url: NODE_URLS[node],
      user: 'loantape',
      password: passwords.loantape,
      cluster: 'loantape',
    }),
    /** Returns the rows that the user `reader` sees at a node. */
    read: (node: NodeName, sql: string) => ask(node, 'reader', sql),
    /** Returns the rows that the publishing user sees at a node. */
    inspect: (node: NodeName, sql: string) => ask(node, 'loantape', sql),
    kill: (node: NodeName) => compose('kill', node),
    restart: (node: NodeName) => compose('up', '--detach', '--wait', node),
    [Symbol.asyncDispose]: end,
  }
}

async function requireDocker(): Promise<void> {
  for (const args of [['info'], ['compose', 'version']]) {
    await run('docker', args).catch((cause: unknown) => {
      throw new Error(
        `This test needs Docker with its compose plugin, and 'docker ${args.join(' ')}' failed: start Docker, then run it again.`,
        {cause},
      )
    })
  }
}
