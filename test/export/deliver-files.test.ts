import {createHash, createHmac, hash, setFips} from 'node:crypto'
import {
  chmodSync,
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
import {startTestServer} from '../source/test-server.ts'
import {placeBatch} from '../support/batches.ts'
import {createFolder, createWorldAt, readFiles, type TestFolder} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'
import {makeKey, type SftpServer, startSftp} from '../support/sftp.ts'

let data: TestFolder
let root: string
let stateDb: StateDb

const frozen = createWorldAt('2026-02-02T12:00:00Z')
/** The pauses between attempts, ms. */
let pauses: number[]
const sleep = async (ms: number) => void pauses.push(ms)
const world = {...frozen, realClock: {...frozen.realClock, sleep}}
const FILES = {'a.csv': `a\n${'x'.repeat(300_000)}\n`, 'deep/month=2026-01/b.csv': 'b\n'}
const PLACE = 'csv/2026-02-02-abc'
let batch: ReturnType<typeof placeBatch>
/** The files of a target that received everything. */
let whole: Record<string, string>

beforeEach(() => {
  pauses = []
  data = createFolder()
  root = data.folder.root
  stateDb = openStateDb(data.folder.stateDb)
  batch = placeBatch(data.folder.exports, '2026-02-02-abc', FILES)
  const placed = Object.entries(batch.written).map(([name, content]) => [`${PLACE}/${name}`, content])
  whole = Object.fromEntries(placed)
  mkdirSync(join(root, 'target'))
})

afterEach(() => {
  stateDb[Symbol.dispose]()
  data[Symbol.dispose]()
})

/** Delivers the batch; `secret` is the password or token of the target. */
const deliver = (
  given: Target,
  {secret, ...fields}: Partial<DeliveryRequest> & {secret?: string} = {},
  changes: Partial<World> = {},
) => {
  const file = secret === undefined ? undefined : writeSecret('secret', secret)
  const name = given.kind === 'http' ? 'token_file' : 'password_file'
  const target = file === undefined ? given : {...given, [name]: file}
  return deliverBatch(stateDb, batch, {name: 'bank', target, ...fields}, {...world, ...changes})
}

/** The content of the target's folder, by path. */
const readTarget = () => readFiles(join(root, 'target'))

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
      const place = join(root, 'target', decodeURIComponent(path).replace('/v1/', ''))
      mkdirSync(join(place, '..'), {recursive: true})
      writeFileSync(place, Buffer.concat(chunks))
    }
    response.writeHead(status, {etag: '"1"', ...headers}).end()
  })
  return {...server, requests}
}

const http = ({url}: {url: string}): Target => ({kind: 'http', url})
const folder = (): Target => ({kind: 'folder', path: join(root, 'target')})

test('a folder gets every file once; a target that now names another place gets everything, a renamed one nothing twice', async () => {
  expect(await deliver(folder())).toMatchObject({outcome: 'delivered', sent: 3})
  expect(readTarget()).toEqual(whole)
  expect(await deliver(folder(), {name: 'partner'})).toMatchObject({outcome: 'unchanged', sent: 0})
  mkdirSync(join(root, 'other'))
  expect(await deliver({kind: 'folder', path: join(root, 'other')})).toMatchObject({sent: 3})
  const [target, other] = [join(root, 'target'), join(root, 'other')]
  expect(readdirSync(join(other, PLACE)).sort()).toEqual(readdirSync(join(target, PLACE)).sort())
  const later = placeBatch(data.folder.exports, '2026-02-03-abc', FILES)
  const share = {name: 'bank', target: folder()}
  await deliverBatch(stateDb, later, share, world)
  expect(await deliver(folder(), {isAgain: true})).toMatchObject({outcome: 'delivered', sent: 3})
  expect(await deliverBatch(stateDb, later, share, world)).toMatchObject({outcome: 'unchanged'})
  expect(listDeliveries(stateDb, batch.batch_id)).toMatchObject([{place: other}, {place: target}])
})

test('a file goes into the folder itself, not through a link that lies where it is written', async () => {
  const other = join(root, 'other')
  writeFileSync(other, 'mine')
  mkdirSync(join(root, 'target', PLACE), {recursive: true})
  symlinkSync(other, join(root, 'target', PLACE, 'a.csv.part'))
  expect(await deliver(folder())).toMatchObject({outcome: 'delivered', sent: 3})
  expect(readFileSync(other, 'utf8')).toBe('mine')
  expect(readTarget()).toEqual(whole)
})

test('a batch that another process delivers to the same place is left to it', async () => {
  const [begun, refused] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  await using endpoint = await startEndpoint(async () => {
    begun.resolve()
    await refused.promise
    return 201
  })
  const first = deliver(http(endpoint))
  await Promise.race([begun.promise, first])
  expect(await failureOf(deliver(http(endpoint)))).toMatchObject({code: 'RUN_IN_PROGRESS', exitCode: 4})
  refused.resolve()
  expect(await first).toMatchObject({outcome: 'delivered'})
  expect(endpoint.requests).toHaveLength(3)
  expect(await deliver(http(endpoint))).toMatchObject({outcome: 'unchanged'})
})

test('a missing folder is refused, not created, and an unwritable one gets no torn file', async () => {
  const refusal = await failureOf(deliver({kind: 'folder', path: join(root, 'unmounted')}))
  expect(refusal).toMatchObject({code: 'TARGET_REFUSED', exitCode: 2})
  expect(existsSync(join(root, 'unmounted'))).toBe(false)
  for (const [path, make] of [
    ['.', (path: string) => writeFileSync(path, 'a file where a folder must be')],
    ['csv', (path: string) => writeFileSync(path, 'a file where a folder must be')],
    [`${PLACE}/a.csv`, (path: string) => mkdirSync(path, {recursive: true})],
  ] as const) {
    const there = join(root, 'target', path)
    rmSync(join(root, 'target'), {recursive: true})
    mkdirSync(dirname(there), {recursive: true})
    make(there)
    const barred = await failureOf(deliver(folder()))
    expect(barred, path).toMatchObject({code: 'TARGET_REFUSED', exitCode: 2})
    expect(barred.message).toMatch(/file 'a\.csv' cannot be written \(E\w+: [a-z ]+\)\./)
    const left = readdirSync(root, {recursive: true, encoding: 'utf8'})
    expect(left.filter((name) => name.endsWith('.part'))).toEqual([])
  }
})

test('a batch that is damaged or incomplete on disk is not sent', async () => {
  const path = join(batch.dir, 'a.csv')
  for (const [spoil, words] of [
    [() => writeFileSync(path, 'other'), 'does not have the sha256 of its manifest'],
    [() => rmSync(path), 'is not there'],
  ] as const) {
    spoil()
    const failure = await failureOf(deliver(folder()))
    expect(failure).toMatchObject({code: 'BATCH_DAMAGED', exitCode: 3})
    expect(failure.message).toContain(words)
    expect(failure.message).toContain('Export its release again')
    expect(readTarget()).toEqual({})
  }
})

test('an endpoint gets each file with its digest and a stable key, the manifest last', async () => {
  await using endpoint = await startEndpoint(() => 201)
  await deliver(http(endpoint), {secret: 'tok_1'})
  await deliver(http(endpoint), {secret: 'tok_1', isAgain: true})
  expect(readTarget()).toEqual(whole)
  expect(endpoint.requests.map((request) => request.url)).toHaveLength(6)
  expect(endpoint.requests[2]?.url).toBe(`/v1/${PLACE}/manifest.json`)
  const {headers, method} = endpoint.requests[0]!
  expect({method, ...headers}).toMatchObject({
    method: 'PUT',
    authorization: 'Bearer tok_1',
    'content-type': 'text/csv; charset=utf-8',
    'content-length': String(FILES['a.csv'].length),
    'content-digest': `sha-256=:${createHash('sha256').update(FILES['a.csv']).digest('base64')}:`,
  })
  const keys = endpoint.requests.map((request) => request.headers['idempotency-key'])
  expect(keys.slice(0, 3)).toEqual(keys.slice(3))
  expect(keys[0]).toBe(`"${PLACE}/a.csv/${hash('sha256', FILES['a.csv']).slice(0, 32)}"`)
})

const SECRET_KEY = 'wJalrXUtnFEMI/K7MDENG'

/** The bucket `v1` of a server. */
const bucketAt = ({url}: {url: string}, more: object = {}): Target => ({
  ...{kind: 's3', bucket: 'v1', region: 'auto', endpoint: new URL(url).origin},
  ...{access_key_id: 'AKIA1', secret_key_file: writeSecret('key', SECRET_KEY)},
  ...more,
})

/** A container; the shared access signature is as written into its file. */
const containerAt = ({url}: {url: string}, sas: string): Target => ({
  kind: 'azure',
  url,
  sas_file: writeSecret('sas', sas),
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
  const digest = createHash('sha256').update(canonical).digest('hex')
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
  const names = Object.keys(batch.written).map((name) => name.replace('=', '%3D'))
  expect(store.requests.map(({url}) => url)).toEqual(
    names.map((name) => `/v1/O%27Neil%20%28in%29/%C3%BC/${PLACE}/${name}`),
  )
  for (const request of store.requests) {
    const {given, expected} = signatureOf(request)
    expect(given).toBe(expected)
  }
  expect(store.requests.map(({headers}) => headers['x-amz-content-sha256'])).toEqual(
    Object.values(batch.written).map((content) => hash('sha256', content)),
  )
  // Object Lock with a retention period demands it.
  expect(store.requests.map(({headers}) => headers['content-md5'])).toEqual(
    Object.values(batch.written).map((content) => hash('md5', content, 'base64')),
  )
  status = 403
  const failure = await failureOf(deliver(target, {isAgain: true}))
  expect(failure).toMatchObject({code: 'TARGET_AUTH', exitCode: 5})
  expect(failure.message).toContain(`${store.url}/O'Neil%20(in)/%C3%BC`)
  expect(failure.message).not.toContain(SECRET_KEY)
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
  const failure = await failureOf(deliver(containerAt(store, sas), {isAgain: true}))
  expect(failure).toMatchObject({code: 'TARGET_AUTH', exitCode: 5})
  expect(failure.message).toContain(`${store.url} refused`)
  expect(JSON.stringify(failure) + failure.message).not.toContain('hush')
})

test('a store whose MD5 Node cannot make in FIPS mode is named as the cause before anything is sent', async () => {
  await using store = await startEndpoint(() => 201)
  for (const target of [bucketAt(store), containerAt(store, 'sig=x')]) {
    setFips(true)
    const failure = await failureOf(deliver(target)).finally(() => setFips(false))
    expect(failure.code).toBe('TARGET_REFUSED')
    expect(failure.message).toContain('MD5, which Node lacks in FIPS mode')
  }
  expect(store.requests).toEqual([])
})

test.each([
  ['s3', 5 * 1024 ** 3],
  ['azure', 5000 * 1024 ** 2],
] as const)(
  'what is larger than %s takes in one request is refused before anything is sent',
  async (kind, most) => {
    await using store = await startEndpoint(() => 200)
    const target = kind === 's3' ? bucketAt(store) : containerAt(store, 'sig=x')
    const files = [
      {name: 'a.csv', bytes: FILES['a.csv'].length, sha256: hash('sha256', FILES['a.csv'])},
      {name: 'warehouse.duckdb', bytes: most + 1, sha256: ''},
    ]
    const sending = sendBackup({...batch, files}, {name: 'store', target}, world)
    const failure = await failureOf(sending)
    expect(failure.code).toBe('TARGET_REFUSED')
    expect(failure.message).toContain(
      `${store.url}: file 'warehouse.duckdb' has ${most + 1} bytes: expected at most ${most},`,
    )
    expect(store.requests).toEqual([])
  },
)

test('an endpoint that stays down defers the delivery; the next sends the missing files despite brief failures', async () => {
  let isDown = false
  const answers = [0, 408, 425]
  await using endpoint = await startEndpoint((request) => {
    isDown ||= request.url?.endsWith('/b.csv') ?? false
    if (!isDown) return 200
    return endpoint.requests.length < 6 ? 500 : (answers.shift() ?? 200)
  })
  const failure = await failureOf(deliver(http(endpoint)))
  expect(failure).toMatchObject({code: 'TARGET_FAILED', exitCode: 6})
  expect(failure.message).toContain("file 'deep/month=2026-01/b.csv' was answered with 500")
  expect(pauses).toEqual([750, 3000, 12_000])
  expect(Object.keys(readTarget())).toEqual([`${PLACE}/a.csv`])
  await deliver(http(endpoint))
  await deliver(http(endpoint))
  expect(readTarget()).toEqual(whole)
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
  const failure = await failureOf(deliver(http(closed), {isAgain: true}))
  expect(failure).toMatchObject({code: 'TARGET_FAILED', exitCode: 6})
  expect([pauses.length, closed.requests.length]).toEqual([1, 1])
})

test('an endpoint that hangs is abandoned after a while, and tried again', async () => {
  const answers = [-1, 201, 201, 201]
  await using endpoint = await startEndpoint(() => answers.shift() ?? 500)
  expect(await deliver(http(endpoint), {silenceMs: 2000})).toMatchObject({outcome: 'delivered'})
  expect(endpoint.requests[1]?.url).toBe(endpoint.requests[0]?.url)
  expect(readTarget()).toEqual(whole)
})

test.each([
  'RequestTimeout',
  'IncompleteBody',
  'BadDigest',
  'XAmzContentSHA256Mismatch',
  'Md5Mismatch',
  'OperationAborted',
])('a store that calls a passing failure a wrong request is asked again: %s', async (why) => {
  const answers = [why === 'OperationAborted' ? 409 : 400]
  await using store = await startTestServer(({incoming}, response) => {
    incoming
      .resume()
      .on('end', () => response.writeHead(answers.shift() ?? 200, {etag: '"1"'}).end(`<Code>${why}</Code>`))
  })
  expect(await deliver(bucketAt(store))).toMatchObject({outcome: 'delivered', sent: 3})
  expect(store.requests).toHaveLength(4)
})

test('a store has not taken a file by an answer that names no ETag, as the page of a proxy in between', async () => {
  let headers = {}
  await using store = await startTestServer(async ({incoming}, response) => {
    await incoming.toArray()
    response.writeHead(200, headers).end('<h1>Log in</h1>')
  })
  const targets = [bucketAt(store), containerAt(store, 'sig=x')]
  for (const target of targets) {
    const failure = await failureOf(deliver(target))
    expect(failure).toMatchObject({code: 'TARGET_FAILED', exitCode: 6})
    expect(failure.message).toContain("file 'a.csv' was answered with 200, but no ETag")
  }
  headers = {etag: '"1"'}
  for (const target of targets) expect(await deliver(target, {isAgain: true})).toMatchObject({sent: 3})
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
  expect(await failureOf(deliver(containerAt(target, 'sig=x'), {isAgain: true}))).toMatchObject({
    code: 'TARGET_AUTH',
  })
})

test('a delivery asked to stop in the middle of a file ends at once, and the next resumes', async () => {
  const stopping = new AbortController()
  await using endpoint = await startEndpoint((request) => {
    if (!request.url?.endsWith('/b.csv') || stopping.signal.aborted) return 201
    stopping.abort(new Error('stopped by SIGTERM'))
    return -1
  })
  const delivery = deliver(http(endpoint), {silenceMs: 3_600_000}, {signal: stopping.signal})
  const failure = await failureOf(delivery)
  expect(failure).toMatchObject({code: 'INTERRUPTED', exitCode: 6})
  expect(failure.message).toContain('stopped by SIGTERM')
  expect(Object.keys(readTarget())).toEqual([`${PLACE}/a.csv`])
  expect(await deliver(http(endpoint))).toMatchObject({outcome: 'delivered', sent: 2})
  expect(readTarget()).toEqual(whole)
})

test('an endpoint that refuses, or whose TLS is not trusted, is not tried again, and the token stays secret', async () => {
  for (const [status, code, exitCode] of [
    [401, 'TARGET_AUTH', 5],
    [403, 'TARGET_AUTH', 5],
    [302, 'TARGET_REFUSED', 2],
    [404, 'TARGET_REFUSED', 2],
    [422, 'TARGET_REFUSED', 2],
  ] as const) {
    await using endpoint = await startEndpoint(() => status)
    const failure = await failureOf(deliver(http(endpoint), {secret: 'tok_secret'}))
    expect(failure, String(status)).toMatchObject({code, exitCode})
    expect(failure.message).not.toContain('tok_secret')
    expect(endpoint.requests).toHaveLength(1)
  }
  await using endpoint = await startEndpoint(() => 201)
  const target: Target = {kind: 'http', url: endpoint.url.replace('http:', 'https:')}
  const failure = await failureOf(deliver(target, {secret: 'tok_secret'}))
  expect(failure).toMatchObject({code: 'TARGET_REFUSED', exitCode: 2})
  expect(failure.message).toContain('certificate or TLS is not accepted')
  expect([endpoint.requests.length, pauses.length]).toEqual([0, 0])
})

const sftp = ({port, hostKey}: SftpServer, fields: object = {}): Target => ({
  kind: 'sftp',
  host: '127.0.0.1',
  port,
  user: 'loantape',
  path: '/',
  host_key: hostKey,
  ...fields,
})

function writeSecret(name: string, content: string): string {
  const path = join(root, name)
  writeFileSync(path, content)
  chmodSync(path, 0o600)
  return path
}

test('an SFTP server gets every file under a temporary name first, the manifest last, by password or by key, and a backup for its owner alone', async () => {
  await using server = await startSftp(join(root, 'target'), {password: 'pass'})
  const target = sftp(server, {password_file: writeSecret('password', 'pass\n')})
  expect(await deliver(target)).toMatchObject({outcome: 'delivered', sent: 3})
  expect(readTarget()).toEqual(whole)
  expect(server.renamed.at(-1)).toBe(`/${PLACE}/manifest.json`)
  const [name, content] = ['a.csv', FILES['a.csv']]
  const files = [{name, bytes: content.length, sha256: hash('sha256', content)}]
  const {folder} = await sendBackup({...batch, profile: 'backup', files}, {name: 'bank', target}, world)
  const sent = readdirSync(join(root, 'target', folder))
  expect(sent).toEqual(['a.csv', 'manifest.json'])
  for (const name of sent) expect(statSync(join(root, 'target', folder, name)).mode & 0o777).toBe(0o600)
  rmSync(join(root, 'target', folder), {recursive: true})
  const locked = {passphrase: 'open', cipher: 'aes256-cbc', rounds: 1}
  const pair = makeKey(locked)
  await using other = await startSftp(join(root, 'target'), {publicKey: pair.public})
  const keys = {
    private_key_file: writeSecret('key', pair.private),
    passphrase_file: writeSecret('phrase', 'open'),
  }
  expect(await deliver(sftp(other, keys), {isAgain: true})).toMatchObject({outcome: 'delivered', sent: 3})
  expect(readTarget()).toEqual(whole)
})

test('a connection that breaks in the middle of a file, a loss, a full disk or a stop leaves no torn file under its name', async () => {
  await using server = await startSftp(join(root, 'target'), {password: 'pass'})
  const target = sftp(server)
  const finished = () => Object.keys(readTarget()).filter((name) => !name.endsWith('.part'))
  const stopping = new AbortController()
  server.onWrite = () => {
    stopping.abort(new Error('stopped by SIGTERM'))
    return 'go on'
  }
  const stopped = await failureOf(deliver(target, {secret: 'pass'}, {signal: stopping.signal}))
  expect(stopped).toMatchObject({code: 'INTERRUPTED', exitCode: 6})
  expect(finished()).toEqual([])
  server.onWrite = () => 'full'
  const full = await failureOf(deliver(target, {secret: 'pass'}))
  expect(full).toMatchObject({code: 'TARGET_FAILED', exitCode: 6})
  expect(full.message).toContain(
    "file 'a.csv' was not accepted (the server says 'Failure', as for a full disk)",
  )
  expect(finished()).toEqual([])
  for (const [fault, name] of [
    ['break', 'a.csv'],
    ['lose', 'b.csv'],
  ] as const) {
    const before = server.logins
    let faults = 1
    server.onWrite = (path) => (path.endsWith(`${name}.part`) && faults-- > 0 ? fault : 'go on')
    expect(await deliver(target, {secret: 'pass', isAgain: true})).toMatchObject({outcome: 'delivered'})
    expect(server.logins - before, fault).toBe(2)
    expect(readTarget()).toMatchObject(whole)
  }
  server.isSwept = true
  const swept = await failureOf(deliver(target, {secret: 'pass', isAgain: true}))
  expect(swept).toMatchObject({code: 'TARGET_FAILED', exitCode: 6})
  expect(readTarget()).toEqual(whole)
})

test('a full disk is never called a missing right, and what stands in the way at the server is named', async () => {
  await using server = await startSftp(join(root, 'target'), {password: 'pass'})
  server.isFull = true
  const full = await failureOf(deliver(sftp(server), {secret: 'pass'}))
  expect(full).toMatchObject({code: 'TARGET_FAILED', exitCode: 6})
  expect(full.message).toContain("(the server says 'Failure', as for a full disk)")
  Object.assign(server, {isFull: false, isClosed: true})
  const closed = await failureOf(deliver(sftp(server), {secret: 'pass'}))
  expect(closed).toMatchObject({code: 'TARGET_REFUSED', exitCode: 2})
  expect(closed.message).toContain("file 'a.csv' was not accepted: permission denied")
  server.isClosed = false
  const mistyped = await failureOf(deliver(sftp(server, {path: '/in'}), {secret: 'pass'}))
  expect(mistyped).toMatchObject({code: 'TARGET_REFUSED', exitCode: 2})
  expect(mistyped.message).toContain("'/in' does not exist there")
  expect(existsSync(join(root, 'target/in'))).toBe(false)
  const inTheWay: [path: string, make: (path: string) => void, words: string][] = [
    [`${PLACE}/a.csv`, (path) => mkdirSync(path, {recursive: true}), `'/${PLACE}/a.csv' is a folder there`],
    [PLACE, (path) => writeFileSync(path, ''), `'/${PLACE}' is a file there`],
    [dirname(PLACE), (path) => writeFileSync(path, ''), `'/${dirname(PLACE)}' is a file there`],
  ]
  for (const [path, make, words] of inTheWay) {
    const there = join(root, 'target', path)
    rmSync(join(root, 'target', dirname(PLACE)), {recursive: true, force: true})
    mkdirSync(dirname(there), {recursive: true})
    make(there)
    pauses.length = 0
    const failure = await failureOf(deliver(sftp(server), {secret: 'pass', isAgain: true}))
    expect(failure).toMatchObject({code: 'TARGET_REFUSED', exitCode: 2})
    expect(failure.message).toContain(words)
    expect(pauses).toEqual([])
    rmSync(there, {recursive: true})
    expect(await deliver(sftp(server), {secret: 'pass', isAgain: true})).toMatchObject({sent: 3})
  }
})

test('a server that logs in and then answers nothing is left after a while, and tried again', async () => {
  await using server = await startSftp(join(root, 'target'), {password: 'pass'})
  server.isMute = true
  const failure = await failureOf(deliver(sftp(server), {secret: 'pass', silenceMs: 300}))
  expect(failure).toMatchObject({code: 'TARGET_FAILED', exitCode: 6})
  expect(failure.message).toContain('(no progress for 0.3 s)')
  expect(pauses).toHaveLength(3)
  server.isMute = false
  expect(await deliver(sftp(server), {secret: 'pass'})).toMatchObject({outcome: 'delivered', sent: 3})
})

test('a server that shows another host key gets nothing, not even a password', async () => {
  await using server = await startSftp(join(root, 'target'), {password: 'pass'})
  const pinned = `SHA256:${'A'.repeat(43)}`
  const failure = await failureOf(deliver(sftp(server, {host_key: pinned}), {secret: 'pass'}))
  expect(failure).toMatchObject({code: 'TARGET_HOST_KEY', exitCode: 5})
  expect(failure.message).toContain(`showed the host key ${server.hostKey}: expected ${pinned}`)
  expect([server.logins, readTarget()]).toEqual([0, {}])
})

test('a secret that cannot be one is refused before anything is sent, by file and never by value', async () => {
  await using endpoint = await startEndpoint(() => 201)
  for (const secret of ['', 'hush\nhush', 'hüsh']) {
    const secret_key_file = writeSecret('own', secret)
    const targets = [http(endpoint), bucketAt(endpoint, {secret_key_file}), containerAt(endpoint, secret)]
    for (const target of targets) {
      const failure = await failureOf(deliver(target, target.kind === 'http' ? {secret} : {}))
      expect(failure, secret).toMatchObject({code: 'TARGETS_INVALID', exitCode: 2})
      expect(failure.message).toMatch(/^(?!.*h[uü]sh)Secret file '.*': expected a secret of ASCII/s)
    }
  }
  expect([endpoint.requests.length, pauses.length]).toEqual([0, 0])
})

test('a server that refuses password or key is not asked again, nor is one asked without a readable secret', async () => {
  await using server = await startSftp(join(root, 'target'), {password: 'pass'})
  const {private: stranger} = makeKey()
  const refused: [fields: object, exitCode: number, words: RegExp][] = [
    [{password_file: writeSecret('password', 'wrong_pass')}, 5, /^(?!.*wrong_pass).*refused the credentials/],
    [{private_key_file: writeSecret('stranger', stranger)}, 5, /refused the credentials/],
    [{}, 2, /neither private_key_file nor password_file/],
    [{password_file: 'nowhere'}, 2, /Secret file 'nowhere' cannot be read \(ENOENT\)/],
    [{password_file: writeSecret('blank', '\n')}, 2, /Secret file '.*': expected a secret\./],
    [{private_key_file: writeSecret('key', 'not a key')}, 2, /^(?!.*not a key)/],
  ]
  for (const [fields, exitCode, words] of refused) {
    const failure = await failureOf(deliver(sftp(server, fields)))
    expect(failure, String(words)).toMatchObject({exitCode, message: expect.stringMatching(words)})
  }
  expect(pauses).toEqual([])
  await server[Symbol.asyncDispose]()
  const failure = await failureOf(deliver(sftp(server), {secret: 'pass'}))
  expect(failure).toMatchObject({code: 'TARGET_FAILED', exitCode: 6})
  expect(failure.message).toContain('cannot be reached')
})
