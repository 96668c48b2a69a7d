import {createReadStream} from 'node:fs'
import {request as send} from 'undici'
import {codeOf, LoantapeError} from '../errors.ts'
import {parseRetryAfter} from '../retry-after.ts'
import type {World} from '../types.ts'
import {type Carrier, failed, type Parcel, refused, unauthorised} from './carrier.ts'
import {baseOf, type HttpTarget, readSecret} from './target.ts'

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
