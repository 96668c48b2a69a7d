import {createHash, getFips, hash, randomUUID} from 'node:crypto'
import {accessSync, constants, createReadStream, existsSync, mkdirSync, statSync} from 'node:fs'
import {connect} from 'node:net'
import {dirname, extname, join, posix} from 'node:path'
import {addAbortSignal} from 'node:stream'
import type SftpClient from 'ssh2-sftp-client'
import {z} from 'zod'
import {type IssuedBatch, listBatches} from '../accounting/issued.ts'
import {
  CATALOGUE,
  codeOf,
  LoantapeError,
  messageOf,
  newError,
  RetryableError,
  reachOf,
} from '../core/errors.ts'
import {parseRetryAfter, withRetries} from '../core/retry.ts'
import type {World} from '../core/types.ts'
import {copyIntoPlace, digestFileNow, shareWithFolder} from '../store/files.ts'
import {acquireLock} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import {type BatchedFile, CONTENT_TYPES, examineBatch, type NamedBatch} from './batch.ts'
import {addressOfBucket, type NamedTarget, placeOf, readSecret, type Target} from './delivery-target.ts'

export interface DeliveryRequest extends NamedTarget {
  /** Sends all files again, even those the target has. */
  isAgain?: boolean
  /** Makes files in a folder or on an SFTP server readable by their owner alone. */
  isPrivate?: boolean
  /** How long a target may make no progress; a minute by default. */
  silenceMs?: number
}

export type DeliveryResult = Awaited<ReturnType<typeof deliverBatch>>

const RETRIES = 3
const PAUSE_MS = 1000

/**
 * Sends a batch to a target, the manifest last: a consumer who waits for it finds everything it names. Transient failures are
 * retried; files that the target has are not sent twice. `sent` counts the files that were sent.
 * @throws what {@link openCarrier} throws; CheckError `BATCH_DAMAGED` before anything is sent; LockedError `RUN_IN_PROGRESS`
 *   while another process makes the same delivery; DeferredError `INTERRUPTED`
 */
export async function deliverBatch(
  stateDb: StateDb,
  {profile, batch_id, dir}: NamedBatch,
  {name: target, isAgain = false, ...how}: DeliveryRequest,
  world: World,
) {
  const place = placeOf(how.target)
  const delivery = {target, place, profile, batch_id}
  const {files: listed, faults} = examineBatch(dir)
  if (faults[0])
    throw newError('BATCH_DAMAGED', faults[0].problem, {kept: 'Nothing was sent.', next: faults[0].next})
  const files = [...listed, measureManifest(dir)]
  // Of two processes writing the same `.part`, one could rename it before the other has finished.
  const lock = `delivery of ${profile}/${batch_id} to ${place}`
  using _lock = acquireLock(stateDb, {runId: randomUUID(), command: 'export', name: lock}, world)
  // Recorded first, so that the next delivery sends them if this one does not finish.
  if (isAgain) stateDb.update('delivered_file', {place, profile, batch_id}, {sha256: ''})
  const sql = `select name || ' ' || sha256 from delivered_file where place = ? and profile = ? and batch_id = ?`
  const there = stateDb.column(z.string(), sql, [place, profile, batch_id])
  const missing = files.filter(({name, sha256}) => !there.includes(`${name} ${sha256}`))
  if (missing.length === 0) return {...delivery, outcome: 'unchanged' as const, sent: 0}
  const note = ({name, sha256}: BatchedFile) =>
    stateDb.insert('delivered_file', {...delivery, name, sha256}, 'or replace')
  await sendFiles({dir, folder: `${profile}/${batch_id}`, files: missing, note}, how, world)
  return {...delivery, outcome: 'delivered' as const, sent: missing.length}
}

/** The manifest is sent last. @throws what {@link deliverBatch} throws for a target */
export async function sendBackup(
  {dir, profile, batch_id, files: listed}: NamedBatch & {files: readonly BatchedFile[]},
  {name: target, ...how}: DeliveryRequest,
  world: World,
) {
  const folder = `${profile}/${batch_id}`
  const files = [...listed, measureManifest(dir)]
  // A backup holds keys and all data.
  await sendFiles({dir, folder, files}, {...how, isPrivate: true}, world)
  return {target, place: placeOf(how.target), folder, sent: files.length}
}

interface Sending {
  /** Where the files are. */
  dir: string
  /** Where to put them, below the target's path. */
  folder: string
  files: readonly BatchedFile[]
  /** Called with each file that has arrived. */
  note?: (file: BatchedFile) => void
}

/** Sends files in their order. After a failure that may pass, those that have not arrived are sent again. */
async function sendFiles(
  {dir, folder, files, note}: Sending,
  how: Omit<DeliveryRequest, 'name'>,
  world: World,
): Promise<void> {
  requireAccepted(files, how.target)
  const missing = new Set(files)
  const pauseMs = (failures: number) => PAUSE_MS * 4 ** failures * (0.5 + world.random() / 2)
  const attempt = async () => {
    await using carrier = await openCarrier(how, folder, world)
    for (const file of missing) {
      world.signal.throwIfAborted()
      await carrier.put({...file, path: join(dir, file.name)})
      note?.(file)
      missing.delete(file)
    }
  }
  await withRetries(attempt, {retries: RETRIES, pauseMs}, world).catch((error: unknown) => {
    const {aborted, reason: cause} = world.signal
    if (!aborted) throw error
    throw newError('INTERRUPTED', `The delivery was ${messageOf(cause)}.`, {...UNFINISHED, cause})
  })
}

/** Most bytes that a store takes in one request. */
const MOST_BYTES = {s3: 5 * 1024 ** 3, azure: 5000 * 1024 ** 2}

/** A store would refuse files that are too large only after receiving them. @throws ConfigError `TARGET_REFUSED` */
function requireAccepted(files: readonly BatchedFile[], target: Target): void {
  const most = target.kind === 's3' || target.kind === 'azure' ? MOST_BYTES[target.kind] : Infinity
  const large = files.find(({bytes}) => bytes > most)
  if (!large) return
  throw newError(
    'TARGET_REFUSED',
    `Target ${placeOf(target)}: file '${large.name}' has ${large.bytes} bytes: expected at most ${most}, so nothing was sent.`,
    {next: 'Deliver it to a target of kind sftp or folder, or leave it out of the export with --table.'},
  )
}

function measureManifest(dir: string): BatchedFile {
  const path = join(dir, 'manifest.json')
  return {name: 'manifest.json', bytes: statSync(path).size, sha256: digestFileNow(path)}
}

/** Targets by place, since a renamed one is the same; under their last names. */
export const listDeliveries = (stateDb: StateDb, batchId: string) =>
  stateDb.all(
    z.object({target: z.string(), place: z.string()}),
    'select target, place from delivered_file where batch_id = ? group by place order by target, place',
    [batchId],
  )

/**
 * Notes that a target is to have a batch of a journal, which may not be issued yet, with what it lacks of the month and of what was
 * issued since the last batch that it took or was to take: they build on each other. The next delivery sends what this one does not.
 * Returns the batches to send, oldest first.
 */
export function oweBatch(
  stateDb: StateDb,
  {name, target}: NamedTarget,
  profile: string,
  batch?: Pick<IssuedBatch, 'batch_id' | 'period'>,
): IssuedBatch[] {
  const place = placeOf(target)
  const known = stateDb.all(
    z.object({batch_id: z.string(), is_owed: z.number()}),
    `select batch_id, max(sha256 = '') as is_owed from delivered_file where profile = ? and place = ? group by batch_id`,
    [profile, place],
  )
  const at = new Map(known.map(({batch_id, is_owed}) => [batch_id, is_owed]))
  const issued = listBatches(stateDb, {profile})
  const last = issued.findLastIndex(({batch_id}) => at.has(batch_id))
  const lacking = issued.filter(
    ({period, batch_id}, index) =>
      period === batch?.period || (last >= 0 && index >= last) || at.get(batch_id),
  )
  for (const {batch_id} of batch ? [...lacking, batch] : lacking) {
    const row = {target: name, place, profile, batch_id, name: 'manifest.json', sha256: ''}
    stateDb.insert('delivered_file', row, 'or ignore')
  }
  return lacking
}

type Kind<K extends Target['kind']> = Extract<Target, {kind: K}>

/** A file appears at the target complete, or not at all. */
interface Carrier extends AsyncDisposable {
  /** @throws RetryableError `TARGET_FAILED`; AuthError `TARGET_AUTH`, `TARGET_HOST_KEY`; ConfigError `TARGET_REFUSED` */
  put(file: BatchedFile & {path: string}): Promise<void>
}

/** The text of every error of an unfinished delivery. */
const {kind: _, ...UNFINISHED} = CATALOGUE.TARGET_FAILED

const errorsAt = (where: string) => ({
  failed: (what: string, cause?: unknown, retryAfterMs = 0) =>
    new RetryableError(
      {code: 'TARGET_FAILED', problem: `Target ${where}: ${what}.`, ...UNFINISHED, cause},
      retryAfterMs,
    ),
  refused: (what: string, cause?: unknown) =>
    newError('TARGET_REFUSED', `Target ${where}: ${what}.`, {cause}),
  unauthorised: (what: string, cause?: unknown) =>
    newError('TARGET_AUTH', `Target ${where} refused the credentials: ${what}.`, {cause}),
})

/** Files go into `folder` below the target's path. */
async function openCarrier(
  {target, silenceMs = 60_000, isPrivate = false}: Omit<DeliveryRequest, 'name'>,
  folder: string,
  world: Pick<World, 'realClock' | 'signal'>,
): Promise<Carrier> {
  const there = {folder, silenceMs}
  switch (target.kind) {
    case 'folder':
      return openFolder(target, folder, isPrivate)
    case 'sftp':
      return await openSftp(target, {...there, isPrivate}, world)
    case 'http':
      return await openHttp(target, putToEndpoint(target), there, world)
    case 's3':
      return await openHttp(target, await putToBucket(target), there, world)
    case 'azure':
      return await openHttp(target, putToContainer(target), there, world)
  }
}

/** Files are copied as `.part`, then renamed. */
export async function openFolder(
  target: Kind<'folder'>,
  folder: string,
  isPrivate = false,
): Promise<Carrier> {
  const {failed, refused} = errorsAt(`folder '${target.path}'`)
  // A missing folder is not created: a share may just not be mounted.
  if (!existsSync(target.path)) throw refused('it does not exist')
  return {
    async put({name, path}) {
      const final = join(target.path, folder, name)
      try {
        // Checked first: on a read-only disk, mkdir would report a missing folder instead.
        accessSync(target.path, constants.W_OK)
        makeFolders(target.path, dirname(join(folder, name)), isPrivate)
        await copyIntoPlace(path, `${final}.part`, final, isPrivate)
      } catch (error) {
        const code = codeOf(error)
        const what = `file '${name}' cannot be written (${messageOf(error).split(',')[0]})`
        throw /^(EACCES|EPERM|EROFS|ENOTDIR|EEXIST|EISDIR)$/.test(code)
          ? refused(what, error)
          : failed(what, error)
      }
    },
    async [Symbol.asyncDispose]() {},
  }
}

/** Each has the readers of its parent, or is private. */
function makeFolders(root: string, path: string, isPrivate: boolean): void {
  let dir = root
  for (const name of path.split('/')) {
    dir = join(dir, name)
    if (mkdirSync(dir, {recursive: true, mode: 0o700}) !== undefined) shareWithFolder(dir, isPrivate)
  }
}

type Put = (
  place: string,
  file: BatchedFile & {path: string},
) => Promise<{url: string; headers: Record<string, string>}>

/** `<url>/<profile>/<batch>/<file>`, with a `Content-Digest` (RFC 9530) and an `Idempotency-Key` made of path and digest. */
function putToEndpoint({url, token_file}: Kind<'http'>): Put {
  const token = readSecret(token_file, true)
  return async (place, {sha256}) => ({
    url: `${url}/${encodePath(place)}`,
    headers: {
      'content-digest': `sha-256=:${Buffer.from(sha256, 'hex').toString('base64')}:`,
      'idempotency-key': `"${place}/${sha256.slice(0, 32)}"`,
      ...(token !== undefined && {authorization: `Bearer ${token}`}),
    },
  })
}

/** Signed with both digests, which the store compares with what it received. Object Lock with a retention period demands the MD5. */
async function putToBucket(target: Kind<'s3'>): Promise<Put> {
  const {
    default: {sign},
  } = await import('aws4')
  const {region, access_key_id: accessKeyId, secret_key_file} = target
  const secretAccessKey = readSecret(secret_key_file, true) ?? ''
  return async (place, {sha256, path: file}) => {
    // Signed as it is sent: not every store decodes these characters before it compares the signature.
    const strict = (sign: string) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`
    const url = `${addressOfBucket(target)}/${encodePath(place)}`.replace(/[!'()*]/g, strict)
    const {host, pathname: path} = new URL(url)
    const asked = {
      service: 's3',
      region,
      method: 'PUT',
      host,
      path,
      headers: {'x-amz-content-sha256': sha256, 'content-md5': await digestMd5(file)},
    }
    const {headers = {}} = sign(asked, {accessKeyId, secretAccessKey})
    return {url, headers: headers as Record<string, string>}
  }
}

/** MD5 is the only digest that the store compares with what it received. */
function putToContainer({url, sas_file}: Kind<'azure'>): Put {
  // Portals show the signature with the URL, or with a leading question mark.
  const signature = (readSecret(sas_file, true) ?? '').replace(/^.*\?/s, '')
  return async (place, {path}) => ({
    url: `${url}/${encodePath(place)}?${signature}`,
    headers: {
      'content-md5': await digestMd5(path),
      'x-ms-blob-type': 'BlockBlob',
      'x-ms-version': '2021-12-02',
    },
  })
}

/** @throws ConfigError `TARGET_REFUSED` */
async function digestMd5(path: string): Promise<string> {
  if (getFips() === 1)
    throw newError(
      'TARGET_REFUSED',
      'Targets of kind s3 and azure need MD5, which Node lacks in FIPS mode, so nothing was sent.',
      {next: 'Run Node without FIPS mode, or deliver to a target of kind http or folder.'},
    )
  const md5 = createHash('md5')
  for await (const part of createReadStream(path)) md5.update(part)
  return md5.digest('base64')
}

const encodePath = (place: string) => place.split('/').map(encodeURIComponent).join('/')

/** Longer than any store's answer to a refused request. */
const MOST_SAID_BYTES = 65_536

async function openHttp(
  target: Kind<'http' | 's3' | 'azure'>,
  put: Put,
  {folder, silenceMs}: {folder: string; silenceMs: number},
  {realClock, signal}: Pick<World, 'realClock' | 'signal'>,
): Promise<Carrier> {
  const isStore = target.kind !== 'http'
  const {failed, refused, unauthorised} = errorsAt(isStore ? placeOf(target) : new URL(target.url).origin)
  const [{request}, {openAgent}] = await Promise.all([import('undici'), import('../core/outgoing.ts')])
  const agent = openAgent(placeOf(target), {timeoutMs: silenceMs, maxResponseSize: MOST_SAID_BYTES})
  return {
    async put(file) {
      const {name, bytes, path} = file
      const {url, headers: told} = await put(`${folder}/${name}`, file)
      const answer = await request(url, {
        method: 'PUT',
        headers: {
          'content-type':
            CONTENT_TYPES.get(extname(name))?.replace('utf-8', file.encoding ?? 'utf-8') ??
            'application/octet-stream',
          'content-length': String(bytes),
          ...told,
        },
        body: createReadStream(path),
        dispatcher: agent,
        signal,
      }).catch((cause: unknown) => {
        const code = codeOf(cause)
        if (!UNTRUSTED.test(code)) throw failed(`file '${name}' was not accepted (${reachOf(cause)})`, cause)
        throw refused(`its certificate or TLS is not accepted (${code}), so nothing was sent`, cause)
      })
      const {statusCode: status, headers} = answer
      // Only the status counts: a body may never end.
      const body = addAbortSignal(AbortSignal.timeout(silenceMs / 10), answer.body)
      const said = await body.text().catch(() => '')
      // Stores give the reason in XML; without it, a wrong clock looks like a wrong key.
      const [, why = ''] = /<Code>(\w+)</.exec(isStore && status >= 300 ? said : '') ?? []
      const what = `file '${name}' was answered with ${status}${why ? ` ${why}` : ''}`
      if (status === 401 || status === 403) throw unauthorised(what)
      if (status >= 500 || [408, 425, 429].includes(status) || PASSING.test(why)) {
        const retryAfterMs = parseRetryAfter(String(headers['retry-after'] ?? ''), realClock.now()) ?? 0
        throw failed(what, undefined, retryAfterMs)
      }
      if (status >= 400) throw refused(what)
      if (status >= 300)
        throw refused(
          `${what}, a redirect: expected its final ${target.kind === 's3' ? 'region or endpoint' : 'URL as url'}`,
        )
      if (isStore && headers.etag === undefined)
        throw failed(`${what}, but no ETag, which names what a store keeps: something in between answered`)
    },
    [Symbol.asyncDispose]: () => agent[Symbol.asyncDispose](),
  }
}

/** What S3 and Azure call wrong requests may pass: a file that was slow or came torn or altered, or another request for it. */
const PASSING =
  /^(RequestTimeout|IncompleteBody|BadDigest|XAmzContentSHA256Mismatch|Md5Mismatch|OperationAborted)$/

/** Node's codes for a certificate it does not trust: `CERT_HAS_EXPIRED`, `DEPTH_ZERO_SELF_SIGNED_CERT`, … */
const UNTRUSTED = /CERT|UNABLE_TO_VERIFY|ERR_TLS|ERR_SSL|EPROTO/

/** The host key is pinned. Files are uploaded as `.part`, then renamed. */
async function openSftp(
  target: Kind<'sftp'>,
  {folder, silenceMs, isPrivate}: {folder: string; silenceMs: number; isPrivate: boolean},
  {signal}: Pick<World, 'signal'>,
): Promise<Carrier> {
  const where = `sftp://${target.host}:${target.port}`
  const errors = errorsAt(where)
  const key = readSecret(target.private_key_file)
  const passphrase = readSecret(target.passphrase_file)
  const password = readSecret(target.password_file)
  if (key === undefined && password === undefined)
    throw errors.refused('neither private_key_file nor password_file is set')
  // Loaded late, since it would slow the start of every command.
  const {default: SftpClient} = await import('ssh2-sftp-client')
  // Without these listeners the library prints late events.
  const client = new SftpClient('loantape', {
    error: () => undefined,
    end: () => undefined,
    close: () => undefined,
  })
  const socket = connect({host: target.host, port: target.port, noDelay: true})
  // Destroying the socket makes an upload fail at once, before the rename; a graceful end would wait for a hung server.
  const hangUp = () => {
    clearTimeout(silence)
    socket.destroy()
  }
  const noProgress = () => socket.destroy(new Error(`no progress for ${silenceMs / 1000} s`))
  const silence = setTimeout(noProgress, silenceMs)
  signal.addEventListener('abort', hangUp, {once: true})
  let shown = ''
  try {
    await client.connect({
      sock: socket,
      username: target.user,
      ...(key !== undefined && {privateKey: key}),
      ...(passphrase !== undefined && {passphrase}),
      ...(password !== undefined && {password}),
      hostVerifier: (hostKey: Buffer) => {
        shown = `SHA256:${hash('sha256', hostKey, 'base64').replace(/=+$/, '')}`
        return shown === target.host_key
      },
    })
  } catch (error) {
    hangUp()
    if (shown !== '' && shown !== target.host_key) {
      const problem = `Target ${where} showed the host key ${shown}: expected ${target.host_key}.`
      throw newError('TARGET_HOST_KEY', problem)
    }
    throw explain(error, errors, 'cannot be reached')
  }
  async function makeFolder(dir: string): Promise<void> {
    const found = await client.exists(dir)
    if (found === '-') throw errors.refused(`'${dir}' is a file there: expected a folder`)
    if (found !== false) return
    // Not even a mistyped one is made: nobody would look into it.
    if (dir === target.path) throw errors.refused(`'${dir}' does not exist there`)
    await makeFolder(posix.dirname(dir))
    await client.mkdir(dir)
  }
  return {
    async put({name, path, bytes}) {
      const final = posix.join(target.path, folder, name)
      const part = `${final}.part`
      silence.refresh()
      try {
        await makeFolder(posix.dirname(final))
        const step = () => void silence.refresh()
        await client.fastPut(path, part, {step, ...(isPrivate && {mode: 0o600})})
        const {size} = await client.stat(part)
        if (size !== bytes) throw errors.failed(`file '${name}' arrived with ${size} of ${bytes} bytes`)
        await rename(client, part, final).catch(async (cause: unknown) => {
          if ((await client.exists(final)) !== 'd') throw cause
          throw errors.refused(`'${final}' is a folder there: expected none`, cause)
        })
      } catch (error) {
        throw error instanceof LoantapeError
          ? error
          : explain(error, errors, `file '${name}' was not accepted`)
      }
    },
    async [Symbol.asyncDispose]() {
      signal.removeEventListener('abort', hangUp)
      hangUp()
    },
  }
}

/** Replaces an existing file: in one step if the server can, else by deleting that first. */
async function rename(client: SftpClient, from: string, to: string): Promise<void> {
  try {
    await client.posixRename(from, to)
  } catch (error) {
    if ((await client.exists(from)) === false) throw error
    if (await client.exists(to)) await client.delete(to)
    await client.rename(from, to)
  }
}

function explain(error: unknown, errors: ReturnType<typeof errorsAt>, what: string): LoantapeError {
  const words = messageOf(error)
  if (/authentication methods failed|permission denied \(publickey/i.test(words))
    return errors.unauthorised('key or password is not accepted', error)
  if (/cannot parse privatekey|encrypted .*key|passphrase/i.test(words)) {
    const expected = 'expected an OpenSSH or PEM key and its passphrase'
    return errors.refused(`the private key cannot be read: ${expected}`, error)
  }
  // So the library calls any failure to make a folder.
  if (/bad path: .* permission denied/i.test(words)) return errors.failed(`${what} (${FAILURE})`, error)
  if (/permission denied/i.test(words) || Reflect.get(Object(error), 'code') === STATUS_DENIED)
    return errors.refused(`${what}: permission denied`, error)
  return errors.failed(`${what} (${reasonOf(words)})`, error)
}

/** SSH_FX_PERMISSION_DENIED, which servers put into words of their own. */
const STATUS_DENIED = 3

/** A full disk shows only as a bare failure (status 4). */
const FAILURE = "the server says 'Failure', as for a full disk"

/** Puts `fastPut: Failure Local: … Remote: …` into our words. */
function reasonOf(words: string): string {
  const said = words.replace(/^(\w+: )+/, '').replace(/ (Local|Remote): .*| \/.*/s, '')
  return said === 'Failure' ? FAILURE : said
}
