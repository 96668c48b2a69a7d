import {hash} from 'node:crypto'
import {accessSync, constants, createReadStream, existsSync, mkdirSync, readFileSync} from 'node:fs'
import {copyFile, rm} from 'node:fs/promises'
import {connect} from 'node:net'
import {dirname, join, posix, resolve} from 'node:path'
import type SftpClient from 'ssh2-sftp-client'
import {z} from 'zod'
import {codeOf, LoantapeError, messageOf, newError, RetryableError} from '../core/errors.ts'
import {describeIssues, parseWritten} from '../core/json.ts'
import {parseRetryAfter} from '../core/retry-after.ts'
import {expectOneOf} from '../core/text.ts'
import type {World} from '../core/types.ts'
import {requireOwnPlace} from '../store/data-folder.ts'
import {moveIntoPlace, readWrittenText, shareWithFolder} from '../store/files.ts'

/** Where batches are delivered to. */
export type Target = FolderTarget | SftpTarget | HttpTarget

/** A target under its name in the targets file. */
export interface NamedTarget {
  name: string
  target: Target
}

const text = z.string().min(1)

/** A folder, such as a share. */
type FolderTarget = z.output<typeof folderTarget>
const folderTarget = z.strictObject({kind: z.literal('folder'), path: text})

/** A server that speaks SFTP. */
export type SftpTarget = z.output<typeof sftpTarget>
const sftpTarget = z.strictObject({
  kind: z.literal('sftp'),
  host: text,
  port: z.int().min(1).max(65_535).default(22),
  user: text,
  path: text,
  /** The only key that is accepted. */
  host_key: z.string().regex(/^SHA256:[A-Za-z0-9+/]{43}$/, 'expected SHA256:… as ssh-keygen -lf prints it'),
  private_key_file: text.optional(),
  passphrase_file: text.optional(),
  password_file: text.optional(),
})

/** File names are appended to the URL, and messages show it. */
const isBare = ({search, hash, username, password}: URL) => search + hash + username + password === ''

/** An endpoint that takes files by PUT. */
type HttpTarget = z.output<typeof httpTarget>
const httpTarget = z.strictObject({
  kind: z.literal('http'),
  url: z
    .url({protocol: /^https?$/, error: 'expected an http or https URL'})
    .refine((url) => !URL.canParse(url) || isBare(new URL(url)), 'expected no query, fragment or password'),
  /** A bearer token. */
  token_file: text.optional(),
})

const targetsSchema = z.record(
  z.string().regex(/^[\w-]+$/, 'expected letters, digits, - and _'),
  z.discriminatedUnion('kind', [folderTarget, sftpTarget, httpTarget]),
)

/** The location of a target, whatever its name. */
export function placeOf(target: Target): string {
  if (target.kind === 'folder') return resolve(target.path)
  if (target.kind === 'http') return baseOf(target)
  const {user, host, port, path} = target
  return `sftp://${user}@${host}:${port}/${posix.normalize(path)}`
}

/** The URL of an endpoint without a trailing `/`. */
function baseOf({url}: HttpTarget): string {
  return url.replace(/\/+$/, '')
}

/** The local folders and files that a target names. */
function listPaths(target: Target): string[] {
  if (target.kind === 'folder') return [target.path]
  const files = Object.entries(target).filter(([field]) => field.endsWith('_file'))
  return files.map(([, file]) => String(file))
}

/**
 * Reads the targets of these names, or all.
 *
 * @throws ConfigError `CONFIG_MISSING`, `TARGETS_INVALID`, `UNKNOWN_NAME`, `FLEET_DATA_SHARED`
 */
export function readTargets(
  {targetsFile: path, sourceDir}: {targetsFile?: string | undefined; sourceDir?: string | undefined},
  names?: readonly string[],
): NamedTarget[] {
  if (path === undefined) {
    throw newError('CONFIG_MISSING', 'No targets to deliver to: LOANTAPE_TARGETS_FILE not set.', {
      next: 'Describe them in a JSON file (see docs/exports.md) and set the variable to its path.',
    })
  }
  const targets = parseTargets(path)
  return (names ?? Object.keys(targets)).map((name) => {
    const target = targets[name]
    if (target) {
      for (const named of listPaths(target)) requireOwnPlace({sourceDir}, named)
      return {name, target}
    }
    throw newError(
      'UNKNOWN_NAME',
      `Target '${name}' is not in '${path}': ${expectOneOf(name, Object.keys(targets))}.`,
    )
  })
}

function parseTargets(path: string): Record<string, Target> {
  const refuse = (problem: string, cause?: unknown) =>
    newError('TARGETS_INVALID', `Targets in '${path}': ${problem}.`, {cause})
  const parsed = targetsSchema.safeParse(parseWritten(readWrittenText(path, refuse), refuse))
  if (parsed.success) return parsed.data
  throw refuse(describeIssues(parsed.error, '').join('; '))
}

/** The content of a secret file, or of a pipe, as secret managers give it. @throws ConfigError `TARGETS_INVALID` */
export function readSecret(path: string | undefined): string | undefined {
  if (path === undefined) return undefined
  try {
    return readFileSync(path, 'utf8').trim()
  } catch (error) {
    throw newError('TARGETS_INVALID', `Secret file '${path}' cannot be read (${codeOf(error)}).`, {
      next: 'Correct the path in the targets file, or the permissions of the file.',
      cause: error,
    })
  }
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
export const UNFINISHED = {
  kept: 'The batch on disk is unchanged; files that have arrived are not sent again.',
  next: 'Run the same export with --deliver again: it sends what is missing.',
}

/** A failure that may soon pass. */
export class TargetFailure extends RetryableError {
  /** The pause that the target asked for, ms. */
  readonly retryAfterMs: number

  constructor(
    where: string,
    what: string,
    {cause, retryAfterMs = 0}: {cause?: unknown; retryAfterMs?: number},
  ) {
    super({code: 'TARGET_FAILED', problem: `Target ${where}: ${what}.`, ...UNFINISHED, cause})
    this.retryAfterMs = retryAfterMs
  }
}

/** The target will not take this. */
function refused(where: string, what: string, cause?: unknown): LoantapeError {
  return newError('TARGET_REFUSED', `Target ${where}: ${what}.`, {cause})
}

/** The target does not accept our credentials. */
function unauthorised(where: string, what: string, cause?: unknown): LoantapeError {
  return newError('TARGET_AUTH', `Target ${where} refused the credentials: ${what}.`, {cause})
}

/** Connects to a target for the files of a batch, which go into this folder below the target's path. */
export async function openCarrier(
  {target, silenceMs}: {target: Target; silenceMs?: number},
  folder: string,
  world: Pick<World, 'realClock' | 'signal'>,
): Promise<Carrier> {
  if (target.kind === 'folder') return openFolder(target, folder)
  if (target.kind === 'http') return openHttp(target, {folder, silenceMs}, world)
  return await openSftp(target, folder, world)
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
    async put({name, path}) {
      const final = join(target.path, folder, name)
      const part = `${final}.part`
      try {
        // On a read-only disk, mkdir would report a missing folder instead.
        accessSync(target.path, constants.W_OK)
        makeFolders(target.path, dirname(join(folder, name)))
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
          : new TargetFailure(where, what, {cause: error})
      }
    },
    async [Symbol.asyncDispose]() {},
  }
}

/** Makes the folders of a path below another, each open to the readers of the one above. */
function makeFolders(root: string, path: string): void {
  let dir = root
  for (const name of path.split('/')) {
    dir = join(dir, name)
    if (mkdirSync(dir, {recursive: true}) !== undefined) shareWithFolder(dir)
  }
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
function openHttp(
  target: HttpTarget,
  {folder, silenceMs = 60_000}: {folder: string; silenceMs?: number | undefined},
  {realClock, signal}: Pick<World, 'realClock' | 'signal'>,
): Carrier {
  const where = new URL(target.url).origin
  const token = readSecret(target.token_file)
  return {
    async put({name, path, bytes, sha256}) {
      const place = `${folder}/${name}`
      const {request} = await import('undici')
      const answer = await request(
        `${baseOf(target)}/${place.split('/').map(encodeURIComponent).join('/')}`,
        {
          method: 'PUT',
          headers: {
            'content-type': TYPES[name.split('.').at(-1) ?? ''] ?? 'application/octet-stream',
            'content-length': String(bytes),
            'content-digest': `sha-256=:${Buffer.from(sha256, 'hex').toString('base64')}:`,
            'idempotency-key': `"${place}/${sha256.slice(0, 32)}"`,
            ...(token !== undefined && {authorization: `Bearer ${token}`}),
          },
          body: createReadStream(path),
          headersTimeout: silenceMs,
          bodyTimeout: silenceMs,
          signal,
        },
      )
        .then(async (response) => {
          await response.body.dump()
          return response
        })
        .catch((cause: unknown) => {
          const code = codeOf(cause)
          if (UNTRUSTED.test(code))
            throw refused(
              where,
              `its certificate or TLS is not accepted (${code}), so nothing was sent`,
              cause,
            )
          throw new TargetFailure(where, `file '${name}' was not accepted (${code})`, {cause})
        })
      const {statusCode: status, headers} = answer
      const what = `file '${name}' was answered with ${status}`
      if (status === 401 || status === 403) throw unauthorised(where, what)
      if (status >= 500 || [408, 425, 429].includes(status)) {
        const retryAfterMs = parseRetryAfter(String(headers['retry-after'] ?? ''), realClock.now()) ?? 0
        throw new TargetFailure(where, what, {retryAfterMs})
      }
      if (status >= 400) throw refused(where, what)
      if (status >= 300) throw refused(where, `${what}, a redirect: expected its final URL as url`)
    },
    async [Symbol.asyncDispose]() {},
  }
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
        if (size !== bytes)
          throw new TargetFailure(where, `file '${name}' arrived with ${size} of ${bytes} bytes`, {})
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
  return new TargetFailure(where, `${what} (${reasonOf(words)})`, {cause: error})
}

/** `fastPut: Failure Local: … Remote: …` in our words; a full disk is a bare failure (status 4). */
function reasonOf(words: string): string {
  const said = words.replace(/^(\w+: )+/, '').replace(/ (Local|Remote): .*| \/.*/s, '')
  return said === 'Failure' ? "the server says 'Failure', as for a full disk" : said
}
