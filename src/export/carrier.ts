import {accessSync, constants, createReadStream, existsSync, mkdirSync} from 'node:fs'
import {copyFile, rm, statfs} from 'node:fs/promises'
import {dirname, join} from 'node:path'
import {request as send} from 'undici'
import {codeOf, type Failure, LoantapeError, messageOf, newError, RetryableError} from '../core/errors.ts'
import {parseRetryAfter} from '../core/retry-after.ts'
import type {World} from '../core/types.ts'
import {moveIntoPlace, shareWithFolder} from '../store/files.ts'
import {baseOf, type FolderTarget, type HttpTarget, readSecret} from './delivery-target.ts'

/** A file of a batch as it is sent. */
export interface Parcel {
  /** Relative to the batch's folder, `/` between its parts. */
  name: string
  /** Where it lies on disk. */
  path: string
  bytes: number
  sha256: string
}

/** A connection to a target; a file it took is whole under its name, or not there under it at all. */
export interface Carrier extends AsyncDisposable {
  /** @throws TargetFailure `TARGET_FAILED`; AuthError `TARGET_AUTH`, `TARGET_HOST_KEY`; ConfigError `TARGET_REFUSED` */
  put(parcel: Parcel): Promise<void>
}

/** What holds of every delivery that did not come to its end. */
export const UNFINISHED = {
  kept: 'The batch on disk is as it was; files the target has already are not sent again.',
  next: 'Run the same export with --deliver again: it goes on with what is missing.',
}

/** A failure that may be over in a moment. */
export class TargetFailure extends RetryableError {
  /** How long the target asked to be left alone, ms. */
  readonly retryAfterMs: number

  constructor(failure: Failure, retryAfterMs: number) {
    super(failure)
    this.retryAfterMs = retryAfterMs
  }
}

/** A failure that may be over in a moment, or when the target said. */
export function failed(where: string, what: string, cause?: unknown, retryAfterMs = 0): TargetFailure {
  const problem = `Target ${where}: ${what}.`
  return new TargetFailure({code: 'TARGET_FAILED', problem, ...UNFINISHED, cause}, retryAfterMs)
}

/** A target that will not take this. */
export function refused(where: string, what: string, cause?: unknown): LoantapeError {
  return newError('TARGET_REFUSED', `Target ${where}: ${what}.`, {cause})
}

/** A target that does not know us. */
export function unauthorised(where: string, what: string, cause?: unknown): LoantapeError {
  return newError('TARGET_AUTH', `Target ${where} refused the credentials: ${what}.`, {cause})
}

/** Copies files into a folder, each under its name only when it is whole. */
export async function openFolder(target: FolderTarget, place: string): Promise<Carrier> {
  const where = `folder '${target.path}'`
  // A share that is not mounted is no new folder to be made.
  if (!existsSync(target.path)) throw refused(where, 'it is not there')
  return {
    async put({name, path, bytes}) {
      const final = join(target.path, place, name)
      const part = `${final}.part`
      try {
        // Of a read-only disk, making folders would say only that there are none.
        accessSync(target.path, constants.W_OK)
        for (const folder of makeFolders(dirname(final))) shareWithFolder(folder)
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

/** Makes a folder and those above it that are missing; returns those made, the highest first. */
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
 * Sends files by `PUT <url>/<profile>/<batch>/<file>`, with an `Idempotency-Key` that is the same whenever the same bytes
 * are sent, and their `Content-Digest` (RFC 9530).
 */
export async function openHttp(
  target: HttpTarget,
  request: {place: string; silenceMs?: number | undefined},
  {realClock, signal}: Pick<World, 'realClock' | 'signal'>,
): Promise<Carrier> {
  const {place, silenceMs = 60_000} = request
  const base = baseOf(target)
  const where = new URL(base).origin
  const token = readSecret(target.token_file)
  return {
    async put(parcel) {
      const path = `${place}/${parcel.name}`
      const url = `${base}/${path.split('/').map(encodeURIComponent).join('/')}`
      try {
        const {statusCode, headers, body} = await send(url, {
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
        requireTaken({status: statusCode, retryAfterMs}, where, parcel.name)
      } catch (error) {
        if (error instanceof LoantapeError) throw error
        throw explain(error, where, parcel.name)
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

function requireTaken(
  {status, retryAfterMs}: {status: number; retryAfterMs: number},
  where: string,
  name: string,
): void {
  if (status >= 200 && status < 300) return
  const what = `file '${name}' was answered with ${status}`
  if (status === 401 || status === 403) throw unauthorised(where, what)
  if (status >= 500 || [408, 425, 429].includes(status)) throw failed(where, what, undefined, retryAfterMs)
  if (status >= 300 && status < 400)
    throw refused(where, `${what}, a redirect: expected its final URL as url`)
  throw refused(where, what)
}

/** Node's codes of a certificate that does not hold: `CERT_HAS_EXPIRED`, `DEPTH_ZERO_SELF_SIGNED_CERT`, … */
const UNTRUSTED = /CERT|UNABLE_TO_VERIFY|ERR_TLS|ERR_SSL|EPROTO/

function explain(error: unknown, where: string, name: string): LoantapeError {
  const code = codeOf(error)
  if (!UNTRUSTED.test(code)) return failed(where, `file '${name}' was not taken (${code})`, error)
  return refused(where, `its certificate or TLS is not accepted (${code}), so nothing was sent`, error)
}
