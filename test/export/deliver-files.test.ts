import {createHmac, hash, setFips} from 'node:crypto'
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import type {IncomingMessage} from 'node:http'
import {dirname, join} from 'node:path'
import {afterEach, beforeEach, expect, test} from 'vitest'
import type {World} from '../../src/core/types.ts'
import {
  type DeliveryRequest,
  deliverBatch,
  listDeliveries,
  sendBackup,
} from '../../src/export/deliver-files.ts'
import type {Target} from '../../src/export/delivery-target.ts'
import {openStateDb, type StateDb} from '../../src/store/state-db.ts'
import {createGate, startTestServer} from '../source/test-server.ts'
import {placeBatch} from '../support/batches.ts'
import {createWorldAt, readFiles} from '../support/data.ts'
import {expectFailure, useFolder} from '../support/set-up.ts'
import {makeKey, type SftpServer, startSftp} from '../support/sftp.ts'

const data = useFolder().folder
const inbox = join(data.root, 'inbox')
const other = join(data.root, 'other')
const frozen = createWorldAt('2026-02-02T12:00:00Z')
/** The pauses between attempts, ms. */
const pauses: number[] = []
const sleep = async (ms: number) => void pauses.push(ms)
const world = {...frozen, realClock: {...frozen.realClock, sleep}}
const FILES = {'a.csv': `a\n${'x'.repeat(300_000)}\n`, 'deep/month=2026-01/b.csv': 'b\n'}
const PLACE = 'csv/2026-02-02-abc'
const placeOfDay = (day: string) => placeBatch(data.exports, `2026-02-${day}-abc`, FILES)
const batch = placeOfDay('02')
/** The files of a target that received everything. */
const whole = Object.fromEntries(
  Object.entries(batch.written).map(([name, content]) => [`${PLACE}/${name}`, content]),
)
let stateDb: StateDb

beforeEach(() => {
  pauses.length = 0
  stateDb = openStateDb(data.stateDb)
  placeOfDay('02')
  mkdirSync(inbox)
})

afterEach(() => stateDb[Symbol.dispose]())

const deliver = (target: Target, fields: Partial<DeliveryRequest> = {}, changes: Partial<World> = {}) =>
  deliverBatch(stateDb, batch, {name: 'bank', target, ...fields}, {...world, ...changes})

const SECRET_KEY = 'wJalrXUtnFEMI/K7MDENG'
const SECRETS = new RegExp(`${SECRET_KEY}|h[uü]sh`)

/** Expects a delivery of everything to fail, and no secret in what it says. */
async function fails(target: Target, code: string, words?: string | RegExp, changes?: Partial<World>) {
  const message = await expectFailure(deliver(target, {isAgain: true}, changes), code, words)
  expect(message).not.toMatch(SECRETS)
}

/** The content of the target's folder, by path. */
const readInbox = () => readFiles(inbox)

function writeSecret(name: string, content: string): string {
  const path = join(data.root, name)
  writeFileSync(path, content, {mode: 0o600})
  return path
}

/** Starts an HTTP endpoint that stores what is put. `answer` first decides the status: 0 hangs up, -1 never answers. */
async function startEndpoint(
  answer: (request: IncomingMessage) => number | Promise<number>,
  headers: Record<string, string> = {},
) {
  const requests: IncomingMessage[] = []
  const server = await startTestServer(async ({incoming, path}, response) => {
    requests.push(incoming)
    const chunks = await incoming.toArray()
    const status = await answer(incoming)
    if (status === 0) return void incoming.socket.destroy()
    if (status === -1) return
    if (status < 300) {
      const place = join(inbox, decodeURIComponent(path).replace('/v1/', ''))
      mkdirSync(dirname(place), {recursive: true})
      writeFileSync(place, Buffer.concat(chunks))
    }
    response.writeHead(status, {etag: '"1"', ...headers}).end()
  })
  return {...server, requests}
}

const folderAt = (path: string): Target => ({kind: 'folder', path})

const http = ({url}: {url: string}, token?: string): Target => ({
  ...{kind: 'http', url},
  ...(token !== undefined && {token_file: writeSecret('token', token)}),
})

/** The bucket `v1` of a server. */
const bucketAt = ({url}: {url: string}, more: object = {}): Target => ({
  ...{kind: 's3', bucket: 'v1', region: 'auto', endpoint: new URL(url).origin},
  ...{access_key_id: 'AKIA1', secret_key_file: writeSecret('key', SECRET_KEY)},
  ...more,
})

/** A container; the shared access signature is as written into its file. */
const containerAt = ({url}: {url: string}, sas = 'sig=x'): Target => ({
  ...{kind: 'azure', url},
  sas_file: writeSecret('sas', sas),
})

/** Starts an SFTP server with a password. */
const startBank = () => startSftp(inbox, {password: 'pass'})

const sftp = ({port, hostKey}: SftpServer, fields: object = {}): Target => ({
  ...{kind: 'sftp', host: '127.0.0.1', port, user: 'loantape', path: '/', host_key: hostKey},
  ...{password_file: writeSecret('password', 'pass\n')},
  ...fields,
})

test('a folder gets every file once; a target that now names another place gets everything, a renamed one nothing twice', async () => {
  expect(await deliver(folderAt(inbox))).toMatchObject({outcome: 'delivered', sent: 3})
  expect(readInbox()).toEqual(whole)
  expect(await deliver(folderAt(inbox), {name: 'partner'})).toMatchObject({outcome: 'unchanged', sent: 0})
  mkdirSync(other)
  expect(await deliver(folderAt(other))).toMatchObject({sent: 3})
  expect(readFiles(other)).toEqual(whole)
  const later = placeOfDay('03')
  const deliverLater = () => deliverBatch(stateDb, later, {name: 'bank', target: folderAt(inbox)}, world)
  await deliverLater()
  expect(await deliver(folderAt(inbox), {isAgain: true})).toMatchObject({outcome: 'delivered', sent: 3})
  expect(await deliverLater()).toMatchObject({outcome: 'unchanged'})
  expect(listDeliveries(stateDb, batch.batch_id)).toMatchObject([{place: inbox}, {place: other}])
})

test('a file goes into the folder itself, not through a link that lies where it is written', async () => {
  writeFileSync(other, 'mine')
  mkdirSync(join(inbox, PLACE), {recursive: true})
  symlinkSync(other, join(inbox, PLACE, 'a.csv.part'))
  await deliver(folderAt(inbox))
  expect(readFileSync(other, 'utf8')).toBe('mine')
  expect(readInbox()).toEqual(whole)
})

test('a batch that another process delivers to the same place is left to it', async () => {
  const [begun, refused] = [createGate(), createGate()]
  await using endpoint = await startEndpoint(async () => {
    begun.open()
    await refused.opened
    return 201
  })
  const first = deliver(http(endpoint))
  await Promise.race([begun.opened, first])
  await fails(http(endpoint), 'RUN_IN_PROGRESS')
  refused.open()
  await first
  expect(endpoint.requests).toHaveLength(3)
  expect(await deliver(http(endpoint))).toMatchObject({outcome: 'unchanged'})
})

const makeFile = (path: string) => writeFileSync(path, '')
const makeFolder = (path: string) => mkdirSync(path, {recursive: true})

test('a missing folder is refused, not created, and an unwritable one gets no torn file', async () => {
  await fails(folderAt(other), 'TARGET_REFUSED')
  expect(existsSync(other)).toBe(false)
  for (const [path, make] of [
    ['.', makeFile],
    ['csv', makeFile],
    [`${PLACE}/a.csv`, makeFolder],
  ] as const) {
    const barred = join(inbox, path)
    rmSync(inbox, {recursive: true})
    mkdirSync(dirname(barred), {recursive: true})
    make(barred)
    await fails(folderAt(inbox), 'TARGET_REFUSED', /file 'a\.csv' cannot be written \(E\w+: [a-z ]+\)\./)
    const left = readdirSync(data.root, {recursive: true, encoding: 'utf8'})
    expect(left.filter((name) => name.endsWith('.part'))).toEqual([])
  }
})

test('a batch that is damaged or incomplete on disk is not sent', async () => {
  const path = join(batch.dir, 'a.csv')
  writeFileSync(path, 'other')
  const damaged = /does not have the sha256 of its manifest.*Export its release again/
  await fails(folderAt(inbox), 'BATCH_DAMAGED', damaged)
  rmSync(path)
  await fails(folderAt(inbox), 'BATCH_DAMAGED', 'is not there')
  expect(readInbox()).toEqual({})
})

test('an endpoint gets each file with its digest and a stable key, the manifest last', async () => {
  await using endpoint = await startEndpoint(() => 201)
  await deliver(http(endpoint, 'tok_1'))
  await deliver(http(endpoint, 'tok_1'), {isAgain: true})
  expect(readInbox()).toEqual(whole)
  expect(endpoint.requests[2]?.url).toBe(`/v1/${PLACE}/manifest.json`)
  const {headers, method} = endpoint.requests[0]!
  expect({method, ...headers}).toMatchObject({
    method: 'PUT',
    authorization: 'Bearer tok_1',
    'content-type': 'text/csv; charset=utf-8',
    'content-length': String(FILES['a.csv'].length),
    'content-digest': `sha-256=:${hash('sha256', FILES['a.csv'], 'base64')}:`,
  })
  const keys = endpoint.requests.map((request) => request.headers['idempotency-key'])
  expect(keys.slice(0, 3)).toEqual(keys.slice(3))
  expect(keys[0]).toBe(`"${PLACE}/a.csv/${hash('sha256', FILES['a.csv']).slice(0, 32)}"`)
})

/**
 * Returns the given and the expected signature of a request:
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html.
 */
function signatureOf({method, url, headers}: IncomingMessage): {given: string; expected: string} {
  const [, scope = '', signed = '', given = ''] =
    /^AWS4-HMAC-SHA256 Credential=AKIA1\/(\S+), SignedHeaders=(\S+), Signature=(\S+)$/.exec(
      headers.authorization ?? '',
    ) ?? []
  const lines = signed.split(';').map((name) => `${name}:${headers[name]}\n`)
  const canonical = [method, url, '', lines.join(''), signed, headers['x-amz-content-sha256']].join('\n')
  const digest = hash('sha256', canonical)
  const key = scope
    .split('/')
    .reduce(
      (last, part) => createHmac('sha256', last).update(part).digest(),
      Buffer.from(`AWS4${SECRET_KEY}`),
    )
  const text = `AWS4-HMAC-SHA256\n${headers['x-amz-date']}\n${scope}\n${digest}`
  return {given, expected: createHmac('sha256', key).update(text).digest('hex')}
}

test('a bucket gets each file signed with its digest, the manifest last, and is not asked again with a wrong key', async () => {
  let status = 200
  await using store = await startEndpoint(() => status)
  const target = bucketAt(store, {region: 'eu-west-1', path: "O'Neil (in)/ü"})
  await deliver(target)
  for (const request of store.requests) {
    const {given, expected} = signatureOf(request)
    expect(given).toBe(expected)
  }
  const sent = store.requests.map(({url, headers}) => [
    url,
    headers['x-amz-content-sha256'],
    // Object Lock with a retention period demands it.
    headers['content-md5'],
  ])
  expect(sent).toEqual(
    Object.entries(batch.written).map(([name, content]) => [
      `/v1/O%27Neil%20%28in%29/%C3%BC/${PLACE}/${name.replace('=', '%3D')}`,
      hash('sha256', content),
      hash('md5', content, 'base64'),
    ]),
  )
  status = 403
  await fails(target, 'TARGET_AUTH', `${store.url}/O'Neil%20(in)/%C3%BC refused`)
  expect(store.requests).toHaveLength(4)
})

test('a container gets each file as a block blob with its MD5; the signature, a new one at once, is in no message', async () => {
  let status = 201
  await using store = await startEndpoint(() => status)
  let sas = ''
  for (const [index, before] of ['', '?', `${store.url}?`].entries()) {
    sas = `sv=2021-12-02&sp=cw&sig=hush%2Fhush${index}`
    await deliver(containerAt(store, `${before}${sas}\n`), {isAgain: true})
    const [request] = store.requests.splice(0, 3)
    expect(request?.url).toBe(`/v1/${PLACE}/a.csv?${sas}`)
    const md5 = hash('md5', FILES['a.csv'], 'base64')
    expect(request?.headers).toMatchObject({'x-ms-blob-type': 'BlockBlob', 'content-md5': md5})
  }
  status = 403
  await fails(containerAt(store, sas), 'TARGET_AUTH', `${store.url} refused`)
})

test('a store whose MD5 Node cannot make in FIPS mode is named as the cause before anything is sent', async () => {
  await using store = await startEndpoint(() => 201)
  for (const target of [bucketAt(store), containerAt(store)]) {
    setFips(true)
    const failing = fails(target, 'TARGET_REFUSED', 'MD5, which Node lacks in FIPS mode')
    await failing.finally(() => setFips(false))
  }
  expect(store.requests).toEqual([])
})

test('what is larger than a store takes in one request is refused before anything is sent', async () => {
  await using store = await startEndpoint(() => 200)
  for (const [target, most] of [
    [bucketAt(store), 5 * 1024 ** 3],
    [containerAt(store), 5000 * 1024 ** 2],
  ] as const) {
    const file = {name: 'a.csv', bytes: FILES['a.csv'].length, sha256: hash('sha256', FILES['a.csv'])}
    const files = [file, {...file, name: 'warehouse.duckdb', bytes: most + 1}]
    const sending = sendBackup({...batch, files}, {name: 'store', target}, world)
    const words = `${store.url}: file 'warehouse.duckdb' has ${most + 1} bytes: expected at most ${most},`
    await expectFailure(sending, 'TARGET_REFUSED', words)
  }
  expect(store.requests).toEqual([])
})

test('an endpoint that stays down defers the delivery; the next sends the missing files despite brief failures', async () => {
  let isDown = false
  const answers = [0, 408, 425]
  await using endpoint = await startEndpoint((request) => {
    isDown ||= request.url?.endsWith('/b.csv') ?? false
    if (!isDown) return 200
    return endpoint.requests.length < 6 ? 500 : (answers.shift() ?? 200)
  })
  await fails(http(endpoint), 'TARGET_FAILED', "file 'deep/month=2026-01/b.csv' was answered with 500")
  expect(pauses).toEqual([750, 3000, 12_000])
  expect(Object.keys(readInbox())).toEqual([`${PLACE}/a.csv`])
  await deliver(http(endpoint))
  await deliver(http(endpoint))
  expect(readInbox()).toEqual(whole)
  expect(endpoint.requests.filter((request) => request.url?.endsWith('/a.csv'))).toHaveLength(1)
})

test('an endpoint that names a time is left alone for it, but not waited for too long', async () => {
  for (const time of ['120', 'Mon, 02 Feb 2026 12:02:00 GMT']) {
    const answers = [429]
    pauses.length = 0
    await using busy = await startEndpoint(() => answers.shift() ?? 201, {'retry-after': time})
    await deliver(http(busy))
    expect(pauses).toEqual([120_000])
  }
  await using closed = await startEndpoint(() => 503, {'retry-after': '3600'})
  await fails(http(closed), 'TARGET_FAILED')
  expect([pauses.length, closed.requests.length]).toEqual([1, 1])
})

test('an endpoint that hangs is abandoned after a while, and tried again', async () => {
  const answers = [-1, 201, 201, 201]
  await using endpoint = await startEndpoint(() => answers.shift() ?? 500)
  expect(await deliver(http(endpoint), {silenceMs: 2000})).toMatchObject({outcome: 'delivered'})
  expect(endpoint.requests[1]?.url).toBe(endpoint.requests[0]?.url)
  expect(readInbox()).toEqual(whole)
})

test('a store that calls a passing failure a wrong request is asked again', async () => {
  const passing = [
    'RequestTimeout',
    'IncompleteBody',
    'BadDigest',
    'XAmzContentSHA256Mismatch',
    'Md5Mismatch',
  ]
  for (const why of [...passing, 'OperationAborted']) {
    await using store = await startTestServer(async ({incoming}, response, turn) => {
      await incoming.toArray()
      response.writeHead(turn === 0 ? 400 : 200, {etag: '"1"'}).end(`<Code>${why}</Code>`)
    })
    expect(await deliver(bucketAt(store), {isAgain: true}), why).toMatchObject({
      outcome: 'delivered',
      sent: 3,
    })
    expect(store.requests).toHaveLength(4)
  }
})

test('a store has not taken a file by an answer that names no ETag, as the page of a proxy in between', async () => {
  await using store = await startTestServer(async ({incoming}, response) => {
    await incoming.toArray()
    response.writeHead(200).end('<h1>Log in</h1>')
  })
  for (const target of [bucketAt(store), containerAt(store)])
    await fails(target, 'TARGET_FAILED', "file 'a.csv' was answered with 200, but no ETag")
})

test('a target is judged by its status, whatever it goes on to say', async () => {
  let status = 201
  await using target = await startTestServer((_request, response) => {
    response.writeHead(status)
    const part = status === 201 ? '.' : '.'.repeat(100_000)
    const dripping = setInterval(() => response.write(part), 20)
    response.on('close', () => clearInterval(dripping))
  })
  expect(await deliver(http(target), {silenceMs: 2000})).toMatchObject({outcome: 'delivered', sent: 3})
  status = 403
  await fails(containerAt(target), 'TARGET_AUTH')
})

test('a delivery asked to stop in the middle of a file ends at once, and the next resumes', async () => {
  const stopping = new AbortController()
  await using endpoint = await startEndpoint((request) => {
    if (!request.url?.endsWith('/b.csv') || stopping.signal.aborted) return 201
    stopping.abort(new Error('stopped by SIGTERM'))
    return -1
  })
  const delivery = deliver(http(endpoint), {silenceMs: 3_600_000}, {signal: stopping.signal})
  await expectFailure(delivery, 'INTERRUPTED', 'stopped by SIGTERM')
  expect(Object.keys(readInbox())).toEqual([`${PLACE}/a.csv`])
  expect(await deliver(http(endpoint))).toMatchObject({outcome: 'delivered', sent: 2})
  expect(readInbox()).toEqual(whole)
})

test('an endpoint that refuses, or whose TLS is not trusted, is not tried again, and the token stays secret', async () => {
  for (const [status, code] of [
    [401, 'TARGET_AUTH'],
    [403, 'TARGET_AUTH'],
    [302, 'TARGET_REFUSED'],
    [404, 'TARGET_REFUSED'],
    [422, 'TARGET_REFUSED'],
  ] as const) {
    await using endpoint = await startEndpoint(() => status)
    await fails(http(endpoint, 'tok_hush'), code)
    expect(endpoint.requests).toHaveLength(1)
  }
  await using endpoint = await startEndpoint(() => 201)
  const target = http({url: endpoint.url.replace('http:', 'https:')})
  await fails(target, 'TARGET_REFUSED', 'certificate or TLS is not accepted')
  expect([endpoint.requests.length, pauses.length]).toEqual([0, 0])
})

test('an SFTP server gets every file under a temporary name first, the manifest last, by password or by key, and a backup for its owner alone', async () => {
  await using server = await startBank()
  const target = sftp(server)
  expect(await deliver(target)).toMatchObject({outcome: 'delivered', sent: 3})
  expect(readInbox()).toEqual(whole)
  expect(server.renamed.at(-1)).toBe(`/${PLACE}/manifest.json`)
  const [name, content] = ['a.csv', FILES['a.csv']]
  const files = [{name, bytes: content.length, sha256: hash('sha256', content)}]
  const {folder} = await sendBackup({...batch, profile: 'backup', files}, {name: 'bank', target}, world)
  const sent = join(inbox, folder)
  expect(readdirSync(sent)).toEqual(['a.csv', 'manifest.json'])
  for (const name of readdirSync(sent)) expect(statSync(join(sent, name)).mode & 0o777).toBe(0o600)
  rmSync(inbox, {recursive: true})
  mkdirSync(inbox)
  const pair = makeKey({passphrase: 'open', cipher: 'aes256-cbc', rounds: 1})
  await using byKey = await startSftp(inbox, {publicKey: pair.public})
  const keys = {
    private_key_file: writeSecret('key', pair.private),
    passphrase_file: writeSecret('phrase', 'open'),
    password_file: undefined,
  }
  expect(await deliver(sftp(byKey, keys))).toMatchObject({outcome: 'delivered', sent: 3})
  expect(readInbox()).toEqual(whole)
})

test('a connection that breaks in the middle of a file, a loss, a full disk or a stop leaves no torn file under its name', async () => {
  await using server = await startBank()
  const target = sftp(server)
  const finished = () => Object.keys(readInbox()).filter((name) => !name.endsWith('.part'))
  const stopping = new AbortController()
  server.onWrite = () => {
    stopping.abort(new Error('stopped by SIGTERM'))
    return 'go on'
  }
  await fails(target, 'INTERRUPTED', '', {signal: stopping.signal})
  expect(finished()).toEqual([])
  const full = "(the server says 'Failure', as for a full disk)"
  server.onWrite = () => 'full'
  await fails(target, 'TARGET_FAILED', `file 'a.csv' was not accepted ${full}`)
  expect(finished()).toEqual([])
  for (const [fault, name] of [
    ['break', 'a.csv'],
    ['lose', 'b.csv'],
  ] as const) {
    const before = server.logins
    let faults = 1
    server.onWrite = (path) => (path.endsWith(`${name}.part`) && faults-- > 0 ? fault : 'go on')
    expect(await deliver(target, {isAgain: true})).toMatchObject({outcome: 'delivered'})
    expect(server.logins - before, fault).toBe(2)
    expect(readInbox()).toMatchObject(whole)
  }
  server.isSwept = true
  await fails(target, 'TARGET_FAILED')
  expect(readInbox()).toEqual(whole)
  // Never called a missing right.
  Object.assign(server, {isSwept: false, isFull: true})
  rmSync(join(inbox, 'csv'), {recursive: true})
  await fails(target, 'TARGET_FAILED', full)
})

test('what stands in the way at a server is named, and nothing is tried again', async () => {
  await using server = await startBank()
  server.isClosed = true
  await fails(sftp(server), 'TARGET_REFUSED', "file 'a.csv' was not accepted: permission denied")
  server.isClosed = false
  await fails(sftp(server, {path: '/in'}), 'TARGET_REFUSED', "'/in' does not exist there")
  expect(existsSync(join(inbox, 'in'))).toBe(false)
  for (const [path, make, words] of [
    [`${PLACE}/a.csv`, makeFolder, `'/${PLACE}/a.csv' is a folder there`],
    [PLACE, makeFile, `'/${PLACE}' is a file there`],
    ['csv', makeFile, `'/csv' is a file there`],
  ] as const) {
    const barrier = join(inbox, path)
    rmSync(join(inbox, 'csv'), {recursive: true, force: true})
    mkdirSync(dirname(barrier), {recursive: true})
    make(barrier)
    await fails(sftp(server), 'TARGET_REFUSED', words)
  }
  expect(pauses).toEqual([])
  rmSync(join(inbox, 'csv'))
  expect(await deliver(sftp(server), {isAgain: true})).toMatchObject({sent: 3})
})

test('a server that logs in and then answers nothing is left after a while, and tried again', async () => {
  await using server = await startBank()
  server.isMute = true
  const delivery = deliver(sftp(server), {silenceMs: 300})
  await expectFailure(delivery, 'TARGET_FAILED', '(no progress for 0.3 s)')
  expect(pauses).toHaveLength(3)
  server.isMute = false
  expect(await deliver(sftp(server))).toMatchObject({outcome: 'delivered', sent: 3})
})

test('a server that shows another host key gets nothing, not even a password', async () => {
  await using server = await startBank()
  const pinned = `SHA256:${'A'.repeat(43)}`
  const words = `showed the host key ${server.hostKey}: expected ${pinned}`
  await fails(sftp(server, {host_key: pinned}), 'TARGET_HOST_KEY', words)
  expect([server.logins, readInbox()]).toEqual([0, {}])
})

test('a secret that cannot be one is refused before anything is sent, by file and never by value', async () => {
  await using endpoint = await startEndpoint(() => 201)
  for (const secret of ['', 'hush\nhush', 'hüsh']) {
    const secret_key_file = writeSecret('own', secret)
    const bucket = bucketAt(endpoint, {secret_key_file})
    for (const target of [http(endpoint, secret), bucket, containerAt(endpoint, secret)])
      await fails(target, 'TARGETS_INVALID', /^Secret file '.*': expected a secret of ASCII/)
  }
  expect([endpoint.requests.length, pauses.length]).toEqual([0, 0])
})

test('a server that refuses password or key is not asked again, nor is one asked without a readable secret', async () => {
  await using server = await startBank()
  const withPassword = (text: string) => sftp(server, {password_file: writeSecret('secret', text)})
  const withKey = (text: string) =>
    sftp(server, {password_file: undefined, private_key_file: writeSecret('key', text)})
  const none = {password_file: undefined}
  await fails(withPassword('hush'), 'TARGET_AUTH', 'refused the credentials')
  await fails(withKey(makeKey().private), 'TARGET_AUTH', 'refused the credentials')
  await fails(sftp(server, none), 'TARGET_REFUSED', 'neither private_key_file nor password_file')
  await fails(
    sftp(server, {password_file: 'nowhere'}),
    'TARGETS_INVALID',
    /'nowhere' cannot be read \(ENOENT\)/,
  )
  await fails(withPassword('\n'), 'TARGETS_INVALID', /Secret file '.*': expected a secret\./)
  await fails(withKey('hush'), 'TARGET_REFUSED', 'the private key cannot be read')
  expect(pauses).toEqual([])
  await server[Symbol.asyncDispose]()
  await fails(sftp(server), 'TARGET_FAILED', 'cannot be reached')
})
