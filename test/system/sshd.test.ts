import {execFileSync, spawn} from 'node:child_process'
import {createHash} from 'node:crypto'
import {once} from 'node:events'
import {mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {userInfo} from 'node:os'
import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {type DeliverableBatch, deliverBatch} from '../../src/delivery/deliver.ts'
import type {SftpTarget} from '../../src/delivery/target.ts'
import {openLedger} from '../../src/ledger/ledger.ts'
import {createFolder, createWorldAt, type TestFolder} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'
import {findFreePort} from '../support/port.ts'

let data: TestFolder
let sshd: ReturnType<typeof spawn>
let target: SftpTarget

/** OpenSSH's own server on loopback, with a configuration, keys and port of its own. */
beforeAll(async () => {
  data = createFolder()
  const at = (name: string) => join(data.folder.root, name)
  const makeKey = (name: string) =>
    execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', at(name)], {stdio: 'pipe'})
  makeKey('host')
  makeKey('user')
  makeKey('stranger')
  mkdirSync(at('inbox'))
  writeFileSync(at('authorized'), readFileSync(at('user.pub')))
  // Where sshd drops its rights when root starts it.
  if (userInfo().uid === 0) mkdirSync('/run/sshd', {recursive: true})
  const port = await findFreePort()
  writeFileSync(
    at('config'),
    `Port ${port}
ListenAddress 127.0.0.1
HostKey ${at('host')}
AuthorizedKeysFile ${at('authorized')}
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
`,
  )
  sshd = spawn('/usr/sbin/sshd', ['-D', '-e', '-f', at('config')], {stdio: ['ignore', 'ignore', 'pipe']})
  let said = ''
  await new Promise<void>((resolve, reject) => {
    sshd.stderr?.on('data', (chunk: Buffer) => {
      said += chunk.toString()
      if (said.includes('Server listening')) resolve()
    })
    sshd.once('exit', () => reject(new Error(`sshd did not start: ${said}`)))
  })
  const fingerprint =
    execFileSync('ssh-keygen', ['-lf', at('host.pub')], {encoding: 'utf8'}).split(' ')[1] ?? ''
  target = {
    kind: 'sftp',
    host: '127.0.0.1',
    port,
    user: userInfo().username,
    path: at('inbox'),
    host_key: fingerprint,
    private_key_file: at('user'),
  }
})

afterAll(async () => {
  const gone = once(sshd, 'exit')
  sshd.kill()
  await gone
  data[Symbol.dispose]()
})

function makeBatch(batch_id: string): DeliverableBatch {
  const dir = join(data.folder.exports, 'csv', batch_id)
  const contents = {'core.deal.csv': `a\n${'x'.repeat(3_000_000)}\n`, 'manifest.json': '{}'}
  mkdirSync(dir, {recursive: true})
  const files = Object.entries(contents).map(([name, content]) => {
    writeFileSync(join(dir, name), content)
    return {name, bytes: content.length, sha256: createHash('sha256').update(content).digest('hex')}
  })
  return {profile: 'csv', batch_id, dir, files, repair: ''}
}

function deliver(batch: DeliverableBatch, fields: Partial<SftpTarget> = {}, isAgain = false) {
  const ledger = openLedger(data.folder.ledger)
  const frozen = createWorldAt('2026-02-02T12:00:00Z')
  const world = {...frozen, realClock: {...frozen.realClock, sleep: () => Promise.resolve()}}
  const request = {name: 'bank', target: {...target, ...fields}, isAgain}
  return deliverBatch(ledger, batch, request, world).finally(() => ledger[Symbol.dispose]())
}

test('OpenSSH takes a batch, and takes it again over what is there', async () => {
  const batch = makeBatch('one')
  expect(await deliver(batch)).toMatchObject({outcome: 'delivered', sent: 2})
  expect(await deliver(batch, {}, true)).toMatchObject({outcome: 'delivered', sent: 2})
  const inbox = join(target.path, 'csv/one')
  expect(readdirSync(inbox).sort()).toEqual(['core.deal.csv', 'manifest.json'])
  for (const name of readdirSync(inbox))
    expect(readFileSync(join(inbox, name)).equals(readFileSync(join(batch.dir, name)))).toBe(true)
})

test('OpenSSH that refuses the key is named, and so is one that is not the pinned server', async () => {
  const batch = makeBatch('two')
  const stranger = await failureOf(deliver(batch, {private_key_file: join(data.folder.root, 'stranger')}))
  expect(stranger).toMatchObject({code: 'TARGET_AUTH', exitCode: 5})
  const other = await failureOf(deliver(batch, {host_key: `SHA256:${'A'.repeat(43)}`}))
  expect(other).toMatchObject({code: 'TARGET_HOST_KEY', exitCode: 5})
  expect(other.message).toContain(target.host_key)
})

test('a folder that cannot be made on the server is refused', async () => {
  writeFileSync(join(data.folder.root, 'file'), '')
  const failure = await failureOf(deliver(makeBatch('three'), {path: join(data.folder.root, 'file')}))
  expect(failure.code).toMatch(/^TARGET_(FAILED|REFUSED)$/)
  rmSync(join(data.folder.root, 'file'))
})
