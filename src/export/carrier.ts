import {accessSync, constants, createReadStream, existsSync, mkdirSync} from 'node:fs'
import {copyFile, rm, statfs} from 'node:fs/promises'
import {dirname, join} from 'node:path'
import {codeOf, type Failure, LoantapeError, messageOf, newError, RetryableError} from '../core/errors.ts'
import {parseRetryAfter} from '../core/retry-after.ts'
import type {World} from '../core/types.ts'
import {moveIntoPlace, shareWithFolder} from '../store/files.ts'
import {baseOf, type FolderTarget, type HttpTarget, readSecret} from './delivery-target.ts'

/** A file of a batch as it is sent. */
export interface Parcel {
  /** Relative to the batch's folder, `/` between its parts. */
  name: string
  /** Its path on disk. */
  path: string
  bytes: number
  sha256: string
}

/** A connection to a target. A file appears under its name whole, or not at all. */
export interface Carrier extends AsyncDisposable {
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

  constructor(failure: Failure, retryAfterMs: number) {
    super(failure)
    this.retryAfterMs = retryAfterMs
  }
}

/** The target failed in a way that may soon pass. */
export function failed(where: string, what: string, cause?: unknown, retryAfterMs = 0): TargetFailure {
  const problem = `Target ${where}: ${what}.`
  return new TargetFailure({code: 'TARGET_FAILED', problem, ...UNFINISHED, cause}, retryAfterMs)
}

/** The target will not take this. */
export function refused(where: string, what: string, cause?: unknown): LoantapeError {
  return newError('TARGET_REFUSED', `Target ${where}: ${what}.`, {cause})
}

/** The target does not accept our credentials. */
export function unauthorised(where: string, what: string, cause?: unknown): LoantapeError {
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
export async function openHttp(
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
