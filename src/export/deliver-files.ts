import {hash, randomUUID} from 'node:crypto'
import {accessSync, constants, createReadStream, existsSync, mkdirSync} from 'node:fs'
import {copyFile, rm, statfs} from 'node:fs/promises'
import {connect} from 'node:net'
import {dirname, join, posix} from 'node:path'
import type SftpClient from 'ssh2-sftp-client'
import {z} from 'zod'
import {sleepUntilStopped} from '../core/clock.ts'
import {
  codeOf,
  explainError,
  type Failure,
  LoantapeError,
  messageOf,
  newError,
  RetryableError,
} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import {parseRetryAfter} from '../core/retry-after.ts'
import type {World} from '../core/types.ts'
import {findFileFault, moveIntoPlace, shareWithFolder} from '../store/files.ts'
import {acquireLock} from '../store/lock.ts'
import type {StateDb} from '../store/state-db.ts'
import {
  baseOf,
  type FolderTarget,
  type HttpTarget,
  type NamedTarget,
  placeOf,
  readSecret,
  type SftpTarget,
} from './delivery-target.ts'

/** A finished batch on disk. */
export interface DeliverableBatch {
  profile: string
  batch_id: string
  dir: string
  /** The files that the manifest names, then the manifest itself. */
  files: {name: string; bytes: number; sha256: string}[]
  /** What to do when its files are missing or damaged. */
  repair: string
}

/** Where and how a batch is delivered. */
export interface DeliveryRequest extends NamedTarget {
  /** Sends files again that the target already has. */
  isAgain?: boolean
  /** How long an endpoint may be silent; a minute by default. */
  silenceMs?: number
}

/** The result of a delivery. */
export interface DeliveryResult extends Delivery {
  outcome: 'delivered' | 'unchanged'
  /** Files that were sent; the target had the others. */
  sent: number
}

const ATTEMPTS = 4
const PAUSE_MS = 1000

/** A target that asks for a longer pause is left to the next export. */
const LONGEST_PAUSE_MS = 300_000

/**
 * Sends a batch to a target, the manifest last, so that a consumer who waits for it finds everything it names. Transient failures
 * are retried. Files that the target has are recorded in the state database and not sent twice.
 *
 * @throws what {@link Carrier} throws; CheckError `BATCH_DAMAGED` before anything is sent; LockedError `RUN_IN_PROGRESS`
 *   while another process makes the same delivery; DeferredError `INTERRUPTED`
 */
export async function deliverBatch(
  stateDb: StateDb,
  batch: DeliverableBatch,
  request: DeliveryRequest,
  world: World,
): Promise<DeliveryResult> {
  const {profile, batch_id} = batch
  const delivery = {target: request.name, place: placeOf(request.target), profile, batch_id}
  const parcels = await packBatch(batch)
  // Two processes that write the same `.part` could rename it before it is whole.
  const name = `delivery of ${profile}/${batch_id} to ${delivery.place}`
  using _lock = acquireLock(stateDb, {runId: randomUUID(), command: 'export', name}, world)
  if (request.isAgain) stateDb.run(`delete from delivered_file where ${WHERE}`, keyOf(delivery))
  const isMissing = ({name, sha256}: Parcel) => readDeliveredFiles(stateDb, delivery).get(name) !== sha256
  const missing = parcels.filter(isMissing).length
  if (missing === 0) return {...delivery, outcome: 'unchanged', sent: 0}
  for (let attempt = 1; ; attempt++) {
    startAttempt(stateDb, delivery, world)
    try {
      await using carrier = await openCarrier(request, `${profile}/${batch_id}`, world)
      for (const parcel of parcels.filter(isMissing)) {
        world.signal.throwIfAborted()
        await carrier.put(parcel)
        const {name, sha256} = parcel
        const {place} = delivery
        stateDb.insert('delivered_file', {place, profile, batch_id, name, sha256}, 'or replace')
      }
      endAttempt(stateDb, delivery, null, world)
      return {...delivery, outcome: 'delivered', sent: missing}
    } catch (error) {
      const failure = world.signal.aborted ? stopped(world.signal) : explainError(error)
      endAttempt(stateDb, delivery, scrubSecrets(failure.message), world)
      const pause = pauseAfter(failure, attempt, world)
      if (pause === undefined) throw failure
      world.log.warn(
        {code: failure.code, attempt, retry_in_ms: pause},
        'delivery failed; it will be tried again',
      )
      await sleepUntilStopped(world.realClock, pause, world.signal)
      if (world.signal.aborted) throw stopped(world.signal)
    }
  }
}

/** The files in sending order, each compared with the manifest. */
async function packBatch({dir, files, batch_id, repair}: DeliverableBatch): Promise<Parcel[]> {
  for (const file of files) {
    const fault = await findFileFault(join(dir, file.name), file.sha256)
    if (fault === undefined) continue
    throw newError('BATCH_DAMAGED', `File '${file.name}' of batch '${batch_id}' ${fault}.`, {
      kept: 'Nothing was sent.',
      next: repair,
    })
  }
  return files.map((file) => ({...file, path: join(dir, file.name)}))
}

async function openCarrier(
  {target, silenceMs}: DeliveryRequest,
  folder: string,
  world: World,
): Promise<Carrier> {
  if (target.kind === 'folder') return openFolder(target, folder)
  if (target.kind === 'http') return await openHttp(target, {folder, silenceMs}, world)
  return await openSftp(target, folder, world)
}

/** The wait before the next attempt, at least what the target asked for; undefined if there is no next attempt. */
function pauseAfter(failure: LoantapeError, attempt: number, {random}: World): number | undefined {
  if (!(failure instanceof TargetFailure) || attempt === ATTEMPTS) return undefined
  if (failure.retryAfterMs > LONGEST_PAUSE_MS) return undefined
  return Math.max(failure.retryAfterMs, PAUSE_MS * 4 ** (attempt - 1) * (0.5 + random() / 2))
}

function stopped({reason}: AbortSignal): LoantapeError {
  return newError('INTERRUPTED', `The delivery was ${messageOf(reason)}.`, {...UNFINISHED, cause: reason})
}

/** The state database's record of a batch's delivery to a target; instants are ISO 8601 of the real clock. */
type DeliveryRecord = z.output<typeof deliveryRow>
const deliveryRow = z.object({
  /** The target's name. */
  target: z.string(),
  /** Its location, which identifies it: a renamed target is the same one. */
  place: z.string(),
  profile: z.string(),
  batch_id: z.string(),
  attempts: z.number(),
  started_at: z.string(),
  /** Null while files are missing. */
  delivered_at: z.string().nullable(),
  error: z.string().nullable(),
})

type Delivery = Pick<DeliveryRecord, 'target' | 'place' | 'profile' | 'batch_id'>

const WHERE = 'place = ? and profile = ? and batch_id = ?'
const keyOf = ({place, profile, batch_id}: Delivery) => [place, profile, batch_id] as const
const nowOf = (world: Pick<World, 'realClock'>) => new Date(world.realClock.now()).toISOString()

/** Every delivery of a batch, by target. */
export function listDeliveries(stateDb: StateDb, batchId: string): DeliveryRecord[] {
  return stateDb.all(deliveryRow, 'select * from delivery where batch_id = ? order by target, profile', [
    batchId,
  ])
}

/** The sha256 of every file that the target has, by name. */
function readDeliveredFiles(stateDb: StateDb, delivery: Delivery): Map<string, string> {
  const row = z.object({name: z.string(), sha256: z.string()})
  const files = stateDb.all(row, `select name, sha256 from delivered_file where ${WHERE}`, keyOf(delivery))
  return new Map(files.map(({name, sha256}) => [name, sha256]))
}

function startAttempt(stateDb: StateDb, delivery: Delivery, world: World): void {
  stateDb.run(
    `insert into delivery (place, profile, batch_id, target, attempts, started_at) values (?, ?, ?, ?, 1, ?)
     on conflict do update
     set target = excluded.target, attempts = attempts + 1, error = null, delivered_at = null`,
    [...keyOf(delivery), delivery.target, nowOf(world)],
  )
}

/** Records how an attempt ended: complete, or with an error. */
function endAttempt(stateDb: StateDb, delivery: Delivery, error: string | null, world: World): void {
  stateDb.run(`update delivery set delivered_at = ?, error = ? where ${WHERE}`, [
    error === null ? nowOf(world) : null,
    error,
    ...keyOf(delivery),
  ])
}

/** A file of a batch as it is sent. */
interface Parcel {
  /** Relative to the batch's folder, `/` between its parts. */
  name: string
  /** Its path on disk. */
  path: string
  bytes: number
  sha256: string
}

/** A connection to a target. A file appears under its name whole, or not at all. */
interface Carrier extends AsyncDisposable {
  /** @throws TargetFailure `TARGET_FAILED`; AuthError `TARGET_AUTH`, `TARGET_HOST_KEY`; ConfigError `TARGET_REFUSED` */
  put(parcel: Parcel): Promise<void>
}

/** What every error of an unfinished delivery says. */
const UNFINISHED = {
  kept: 'The batch on disk is unchanged; files that have arrived are not sent again.',
  next: 'Run the same export with --deliver again: it sends what is missing.',
}

/** A failure that may soon pass. */
class TargetFailure extends RetryableError {
  /** The pause that the target asked for, ms. */
  readonly retryAfterMs: number

  constructor(failure: Failure, retryAfterMs: number) {
    super(failure)
    this.retryAfterMs = retryAfterMs
  }
}

/** The target failed in a way that may soon pass. */
function failed(where: string, what: string, cause?: unknown, retryAfterMs = 0): TargetFailure {
  const problem = `Target ${where}: ${what}.`
  return new TargetFailure({code: 'TARGET_FAILED', problem, ...UNFINISHED, cause}, retryAfterMs)
}

/** The target will not take this. */
function refused(where: string, what: string, cause?: unknown): LoantapeError {
  return newError('TARGET_REFUSED', `Target ${where}: ${what}.`, {cause})
}

/** The target does not accept our credentials. */
function unauthorised(where: string, what: string, cause?: unknown): LoantapeError {
  return newError('TARGET_AUTH', `Target ${where} refused the credentials: ${what}.`, {cause})
}

/**
 * Copies files into a folder, as `.part` first, then renames them.
 *
 * @param folder of the batch, below the target's path
 */
export async function openFolder(target: FolderTarget, folder: string): Promise<Carrier> {
  const where = `folder '${target.path}'`
  // Not created if missing, because a share may just not be mounted.
  if (!existsSync(target.path)) throw refused(where, 'it does not exist')
  return {
    async put({name, path, bytes}) {
      const final = join(target.path, folder, name)
      const part = `${final}.part`
      try {
        // On a read-only disk, mkdir would report a missing folder instead.
        accessSync(target.path, constants.W_OK)
        for (const made of makeFolders(dirname(final))) shareWithFolder(made)
        const {bavail, bsize} = await statfs(dirname(final))
        if (bavail * bsize < bytes)
          throw Object.assign(new Error('ENOSPC: no space left on device'), {code: 'ENOSPC'})
        await copyFile(path, part)
        shareWithFolder(part)
        moveIntoPlace(part, final)
      } catch (error) {
        const code = codeOf(error)
        const left = await rm(part, {force: true}).then(
          () => '',
          (cause) => `; '${part}' is left there (${codeOf(cause)})`,
        )
        const what = `file '${name}' cannot be written (${messageOf(error).split(',')[0]})${left}`
        throw /^(EACCES|EPERM|EROFS|ENOTDIR)$/.test(code)
          ? refused(where, what, error)
          : failed(where, what, error)
      }
    },
    async [Symbol.asyncDispose]() {},
  }
}

/** Makes a folder and its missing parents. @returns those made, the highest first */
function makeFolders(path: string): string[] {
  if (existsSync(path)) return []
  const above = makeFolders(dirname(path))
  mkdirSync(path, {recursive: true})
  return [...above, path]
}

const TYPES: Record<string, string> = {
  csv: 'text/csv; charset=utf-8',
  json: 'application/json',
  parquet: 'application/vnd.apache.parquet',
  xlsx: 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet',
}

/**
 * Sends files by `PUT <url>/<profile>/<batch>/<file>`, with a `Content-Digest` (RFC 9530) and an `Idempotency-Key` that depends
 * only on the path and the bytes.
 */
async function openHttp(
  target: HttpTarget,
  {folder, silenceMs = 60_000}: {folder: string; silenceMs?: number | undefined},
  {realClock, signal}: Pick<World, 'realClock' | 'signal'>,
): Promise<Carrier> {
  const base = baseOf(target)
  const where = new URL(base).origin
  const token = readSecret(target.token_file)
  return {
    async put(parcel) {
      const path = `${folder}/${parcel.name}`
      const url = `${base}/${path.split('/').map(encodeURIComponent).join('/')}`
      try {
        const {request} = await import('undici')
        const {statusCode, headers, body} = await request(url, {
          method: 'PUT',
          headers: {
            ...describe(parcel, path),
            ...(token !== undefined && {authorization: `Bearer ${token}`}),
          },
          body: createReadStream(parcel.path),
          headersTimeout: silenceMs,
          bodyTimeout: silenceMs,
          signal,
        })
        await body.dump()
        const retryAfterMs = parseRetryAfter(String(headers['retry-after'] ?? ''), realClock.now()) ?? 0
        const failure = findFailure(statusCode, where, {name: parcel.name, retryAfterMs})
        if (failure) throw failure
      } catch (error) {
        if (error instanceof LoantapeError) throw error
        const code = codeOf(error)
        throw UNTRUSTED.test(code)
          ? refused(where, `its certificate or TLS is not accepted (${code}), so nothing was sent`, error)
          : failed(where, `file '${parcel.name}' was not accepted (${code})`, error)
      }
    },
    async [Symbol.asyncDispose]() {},
  }
}

function describe({name, bytes, sha256}: Parcel, path: string): Record<string, string> {
  return {
    'content-type': TYPES[name.split('.').at(-1) ?? ''] ?? 'application/octet-stream',
    'content-length': String(bytes),
    'content-digest': `sha-256=:${Buffer.from(sha256, 'hex').toString('base64')}:`,
    'idempotency-key': `"${path}/${sha256.slice(0, 32)}"`,
  }
}

function findFailure(
  status: number,
  where: string,
  {name, retryAfterMs}: {name: string; retryAfterMs: number},
): LoantapeError | undefined {
  if (status >= 200 && status < 300) return undefined
  const what = `file '${name}' was answered with ${status}`
  if (status === 401 || status === 403) return unauthorised(where, what)
  if (status >= 500 || [408, 425, 429].includes(status)) return failed(where, what, undefined, retryAfterMs)
  const isRedirect = status >= 300 && status < 400
  return refused(where, isRedirect ? `${what}, a redirect: expected its final URL as url` : what)
}

/** Node's codes for a certificate it does not trust: `CERT_HAS_EXPIRED`, `DEPTH_ZERO_SELF_SIGNED_CERT`, … */
const UNTRUSTED = /CERT|UNABLE_TO_VERIFY|ERR_TLS|ERR_SSL|EPROTO/

const CONNECT_MS = 20_000

/**
 * Connects to an SFTP server with the pinned host key; files are uploaded as `.part`, then renamed.
 *
 * @param folder of the batch, below the target's path
 */
async function openSftp(
  target: SftpTarget,
  folder: string,
  {signal}: Pick<World, 'signal'>,
): Promise<Carrier> {
  const where = `sftp://${target.host}:${target.port}`
  const key = readSecret(target.private_key_file)
  const passphrase = readSecret(target.passphrase_file)
  const password = readSecret(target.password_file)
  if (key === undefined && password === undefined) {
    throw refused(where, 'neither private_key_file nor password_file is set')
  }
  // Loaded late, or every command would start slower.
  const {default: SftpClient} = await import('ssh2-sftp-client')
  // Without these the library prints events after the end.
  const client = new SftpClient('loantape', {
    error: () => undefined,
    end: () => undefined,
    close: () => undefined,
  })
  const socket = connect({host: target.host, port: target.port, noDelay: true})
  // Makes an upload fail at once, before it is renamed. A graceful end would wait for a hung server.
  const hangUp = () => void socket.destroy()
  signal.addEventListener('abort', hangUp, {once: true})
  let shown = ''
  try {
    await client.connect({
      sock: socket,
      username: target.user,
      readyTimeout: CONNECT_MS,
      keepaliveInterval: 10_000,
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
    throw explain(error, where, 'cannot be reached')
  }
  const dirs = new Set<string>()
  return {
    async put({name, path, bytes}) {
      const final = posix.join(target.path, folder, name)
      const part = `${final}.part`
      try {
        const dir = posix.dirname(final)
        if (!dirs.has(dir) && (await client.exists(dir)) === false) await client.mkdir(dir, true)
        dirs.add(dir)
        await client.fastPut(path, part)
        const {size} = await client.stat(part)
        if (size !== bytes) throw failed(where, `file '${name}' arrived with ${size} of ${bytes} bytes`)
        await rename(client, part, final)
      } catch (error) {
        throw error instanceof LoantapeError
          ? error
          : explain(error, where, `file '${name}' was not accepted`)
      }
    },
    async [Symbol.asyncDispose]() {
      signal.removeEventListener('abort', hangUp)
      hangUp()
    },
  }
}

/** Renames over an existing file: in one step if the server can, else after deleting it. */
async function rename(client: SftpClient, from: string, to: string): Promise<void> {
  try {
    await client.posixRename(from, to)
  } catch (error) {
    if ((await client.exists(from)) === false) throw error
    if (await client.exists(to)) await client.delete(to)
    await client.rename(from, to)
  }
}

function explain(error: unknown, where: string, what: string): LoantapeError {
  const words = messageOf(error)
  if (/authentication methods failed|permission denied \(publickey/i.test(words)) {
    return unauthorised(where, 'key or password is not accepted', error)
  }
  if (/cannot parse privatekey|encrypted .*key|passphrase/i.test(words)) {
    const expected = 'expected an OpenSSH or PEM key and its passphrase'
    return refused(where, `the private key cannot be read: ${expected}`, error)
  }
  if (/permission denied/i.test(words) || codeOf(error) === '3')
    return refused(where, `${what}: permission denied`, error)
  return failed(where, `${what} (${reasonOf(words)})`, error)
}

/** `fastPut: Failure Local: … Remote: …` in our words; a full disk is a bare failure (status 4). */
function reasonOf(words: string): string {
  const said = words.replace(/^(\w+: )+/, '').replace(/ (Local|Remote): .*| \/.*/s, '')
  return said === 'Failure' ? "the server says 'Failure', as for a full disk" : said
}
