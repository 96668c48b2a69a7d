import {execFileSync} from 'node:child_process'
import {existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync} from 'node:fs'
import {userInfo} from 'node:os'
import {join} from 'node:path'
import {afterAll, expect, test} from 'vitest'
import type {NamedBatch} from '../../src/export/batch.ts'
import {deliverBatch} from '../../src/export/deliver-files.ts'
import type {Target} from '../../src/export/delivery-target.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {placeBatch} from '../support/batches.ts'
import {createFolder, createWorldAt} from '../support/data.ts'
import {failureOf, type Started, startProcess, stopProcess} from '../support/lab.ts'
import {findFreePort} from '../support/port.ts'
import {until} from '../support/until.ts'

const at = (name: string) => join(data.folder.root, name)
const makeKey = (name: string) =>
  execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', at(name)], {stdio: 'pipe'})

/** Starts OpenSSH's own server on loopback, with separate configuration, keys and port. */
async function startSshd(port: number, flags = ''): Promise<Started> {
  const settings = [
    ...[`Port ${port}`, 'ListenAddress 127.0.0.1', `HostKey ${at('host')}`, 'PidFile none', 'UsePAM no'],
    ...[`AuthorizedKeysFile ${at('authorized')}`, 'StrictModes no', 'PasswordAuthentication no'],
    ...['PermitRootLogin prohibit-password', `Subsystem sftp internal-sftp ${flags}`],
  ]
  writeFileSync(at('config'), `${settings.join('\n')}\n`)
  const server = startProcess(['/usr/sbin/sshd', '-D', '-e', '-f', at('config')], {})
  const dead = server.ended.then(({stderr}) => Promise.reject(new Error(`sshd did not start: ${stderr}`)))
  await Promise.race([until(() => server.printed().stderr.includes('Server listening')), dead])
  return server
}

const data = createFolder()
for (const name of ['host', 'user', 'stranger']) makeKey(name)
mkdirSync(at('inbox'))
writeFileSync(at('authorized'), readFileSync(at('user.pub')))
// The folder into which sshd drops its privileges when started by root.
if (userInfo().uid === 0) mkdirSync('/run/sshd', {recursive: true})
const port = await findFreePort()
let sshd = await startSshd(port)
const fingerprint =
  execFileSync('ssh-keygen', ['-lf', at('host.pub')], {encoding: 'utf8'}).split(' ')[1] ?? ''
const target: Extract<Target, {kind: 'sftp'}> = {
  kind: 'sftp',
  host: '127.0.0.1',
  port,
  user: userInfo().username,
  path: at('inbox'),
  host_key: fingerprint,
  private_key_file: at('user'),
}

afterAll(async () => {
  await stopProcess(sshd)
  data[Symbol.dispose]()
})

const makeBatch = (batch_id: string) =>
  placeBatch(data.folder.exports, batch_id, {'core.deal.csv': `a\n${'x'.repeat(3_000_000)}\n`})

function deliver(batch: NamedBatch, fields: Partial<Extract<Target, {kind: 'sftp'}>> = {}, isAgain = false) {
  const stateDb = openStateDb(data.folder.stateDb)
  const frozen = createWorldAt('2026-02-02T12:00:00Z')
  const world = {...frozen, realClock: {...frozen.realClock, sleep: async () => undefined}}
  const request = {name: 'bank', target: {...target, ...fields}, isAgain}
  return deliverBatch(stateDb, batch, request, world).finally(() => stateDb[Symbol.dispose]())
}

test('OpenSSH accepts a batch, and accepts it again over the existing one', async () => {
  const batch = makeBatch('one')
  for (const isAgain of [false, true])
    expect(await deliver(batch, {}, isAgain)).toMatchObject({outcome: 'delivered', sent: 2})
  const inbox = join(target.path, 'csv/one')
  expect(readdirSync(inbox).sort()).toEqual(['core.deal.csv', 'manifest.json'])
  for (const name of readdirSync(inbox))
    expect(readFileSync(join(inbox, name)).equals(readFileSync(join(batch.dir, name)))).toBe(true)
})

test('an OpenSSH server that refuses key or folder is named, and so is one that is not the pinned server', async () => {
  const batch = makeBatch('two')
  const stranger = await failureOf(deliver(batch, {private_key_file: at('stranger')}))
  expect(stranger).toMatchObject({code: 'TARGET_AUTH', exitCode: 5})
  const other = await failureOf(deliver(batch, {host_key: `SHA256:${'A'.repeat(43)}`}))
  expect(other).toMatchObject({code: 'TARGET_HOST_KEY', exitCode: 5})
  expect(other.message).toContain(target.host_key)
  writeFileSync(at('file'), '')
  expect((await failureOf(deliver(batch, {path: at('file')}))).code).toMatch(/^TARGET_(FAILED|REFUSED)$/)
})

test('a server that is read-only is named and gets nothing', async () => {
  const batch = makeBatch('four')
  await stopProcess(sshd)
  sshd = await startSshd(target.port, '-R')
  const refusal = await failureOf(deliver(batch))
  expect(refusal).toMatchObject({code: 'TARGET_REFUSED', exitCode: 2})
  expect(refusal.message).toContain('permission denied')
  expect(existsSync(join(target.path, 'csv/four'))).toBe(false)
  await stopProcess(sshd)
  sshd = await startSshd(target.port)
  expect(await deliver(batch)).toMatchObject({outcome: 'delivered', sent: 2})
})
