import {createReadStream} from 'node:fs'
import {request} from 'undici'
import {codeOf, LoantapeError} from '../errors.ts'
import {type Carrier, failed, type Parcel, refused, unauthorised} from './carrier.ts'
import {type HttpTarget, readSecret} from './target.ts'

const TYPES: Record<string, string> = {
  csv: 'text/csv; charset=utf-8',
  json: 'application/json',
  parquet: 'application/vnd.apache.parquet',
  xlsx: 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet',
}

/** Bytes before which nothing may be silent for this long. */
const SILENCE_MS = 60_000

/**
 * Sends files by `PUT <url>/<profile>/<batch>/<file>`, with an `Idempotency-Key` that is the same whenever the same bytes
 * are sent, and their `Content-Digest` (RFC 9530).
 */
export async function openHttp(
  target: HttpTarget,
  place: string,
  secret: string | undefined,
): Promise<Carrier> {
  const base = target.url.replace(/\/+$/, '')
  const where = new URL(base).origin
  const token = readSecret(target.token_file) ?? secret
  return {
    async put(parcel) {
      const path = `${place}/${parcel.name}`
      const url = `${base}/${path.split('/').map(encodeURIComponent).join('/')}`
      try {
        const {statusCode, body} = await request(url, {
          method: 'PUT',
          headers: {
            ...describe(parcel, path),
            ...(token !== undefined && {authorization: `Bearer ${token}`}),
          },
          body: createReadStream(parcel.path),
          headersTimeout: SILENCE_MS,
          bodyTimeout: SILENCE_MS,
        })
        await body.dump()
        requireTaken(statusCode, where, parcel.name)
      } catch (error) {
        if (error instanceof LoantapeError) throw error
        throw failed(where, `file '${parcel.name}' was not taken (${codeOf(error)})`, error)
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

function requireTaken(status: number, where: string, name: string): void {
  if (status >= 200 && status < 300) return
  const what = `file '${name}' was answered with ${status}`
  if (status === 401 || status === 403) throw unauthorised(where, what)
  if (status >= 500 || [408, 425, 429].includes(status)) throw failed(where, what)
  throw refused(where, what)
}
