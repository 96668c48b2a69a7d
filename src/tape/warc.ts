import {hash} from 'node:crypto'
import {STATUS_CODES} from 'node:http'
import {gzipSync} from 'node:zlib'

/** An answer as an archive of the web has it. */
export interface ArchivedAnswer {
  /** What tells it apart: the line of a tape. */
  place: string
  uri: string
  /** ISO 8601. */
  receivedAt: string
  status: number
  headers: Record<string, string>
  body: Buffer
}

/** The record an archive begins with (ISO 28500, WARC 1.1): what wrote it, and about what. */
export function formatArchiveHead(fields: Record<string, string>, date: string): Buffer {
  return formatRecord(
    {type: 'warcinfo', place: JSON.stringify(fields), date, fields: {}},
    'application/warc-fields',
    formatHeaders(fields),
  )
}

/** The record of an answer, compressed by itself as archives are. Lengths and codings are those of the body here. */
export function formatAnswer({place, uri, receivedAt, status, headers, body}: ArchivedAnswer): Buffer {
  const own = Object.entries(headers).filter(
    ([name]) => !['content-length', 'content-encoding', 'transfer-encoding'].includes(name),
  )
  const said = formatHeaders({...Object.fromEntries(own), 'content-length': String(body.length)})
  const head = Buffer.from(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n${said}\r\n`)
  const fields = {
    'WARC-Target-URI': uri,
    'WARC-Payload-Digest': `sha256:${hash('sha256', body)}`,
    'Loantape-Line': place,
  }
  return formatRecord(
    {type: 'response', place, date: receivedAt, fields},
    'application/http; msgtype=response',
    Buffer.concat([head, body]),
  )
}

/** What of an answer may be shown, beside the sha256 of what was received. */
export function formatReduced(
  {place, uri, receivedAt}: Pick<ArchivedAnswer, 'place' | 'uri' | 'receivedAt'>,
  {shown, sha256}: {shown: string; sha256: string},
): Buffer {
  const fields = {
    'WARC-Target-URI': uri,
    'Loantape-Line': place,
    'Loantape-Received-Digest': `sha256:${sha256}`,
  }
  return formatRecord({type: 'conversion', place, date: receivedAt, fields}, 'application/json', shown)
}

function formatRecord(
  {type, place, date, fields}: {type: string; place: string; date: string; fields: Record<string, string>},
  contentType: string,
  block: string | Buffer,
): Buffer {
  const content = Buffer.from(block)
  const id = hash('sha256', `${type} ${place}`)
  const uuid = [
    id.slice(0, 8),
    id.slice(8, 12),
    `8${id.slice(13, 16)}`,
    `8${id.slice(17, 20)}`,
    id.slice(20, 32),
  ]
  const header = formatHeaders({
    'WARC-Type': type,
    'WARC-Record-ID': `<urn:uuid:${uuid.join('-')}>`,
    'WARC-Date': date,
    ...fields,
    'WARC-Block-Digest': `sha256:${hash('sha256', content)}`,
    'Content-Type': contentType,
    'Content-Length': String(content.length),
  })
  return gzipSync(Buffer.concat([Buffer.from(`WARC/1.1\r\n${header}\r\n`), content, Buffer.from('\r\n\r\n')]))
}

function formatHeaders(fields: Record<string, string>): string {
  return Object.entries(fields)
    .map(([name, value]) => `${name}: ${value.replace(/[\r\n]+/g, ' ')}\r\n`)
    .join('')
}
