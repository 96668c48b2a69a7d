import {hash, randomUUID} from 'node:crypto'
import {createReadStream, rmSync, statSync} from 'node:fs'
import {open} from 'node:fs/promises'
import {join} from 'node:path'
import {Readable} from 'node:stream'
import {setTimeout} from 'node:timers/promises'
import type {FastifyReply} from 'fastify'
import {CONTENT_TYPES} from '../export/batch.ts'
import {quoteName} from '../store/database.ts'
import {requireIntact} from '../store/release.ts'
import {addressOf} from './filter.ts'
import {askerOf, refuse} from './http-server.ts'
import {FORMATS} from './tables.ts'
import type {AskingView} from './view.ts'

/** Bytes written before the answer starts, so that most failures still get an error page. */
const FIRST_BYTES = 64 * 1024

const LOOK_MS = 50

/**
 * `/data/<table>.<format>` sends a table, filtered and in order; `/data/query.<format>?q=…` the rows of a SELECT. Rows are sent
 * while they are written. In CSV, text that a spreadsheet would take for a formula gets a leading `'`, unless the address has
 * `exact`. The ETag depends on the release, the request and what the caller may read.
 */
export async function sendData(view: AskingView, name: string, reply: FastifyReply): Promise<FastifyReply> {
  const {request} = reply
  const {release, filter, query, mayRead, filesDir, download} = view
  const [, table = '', format = ''] = /^(.+)\.(\w+)$/.exec(name) ?? []
  const known = FORMATS.find((one) => one === format)
  const asked = table === 'query' ? query.get('q') : null
  // The name goes into SQL, so it must be a known table.
  const whole = mayRead(table) ? release.manifest.tables.find((entry) => entry.name === table) : undefined
  if (!known || (asked === null && !whole))
    return refuse(reply, 404, `No such data: expected a table of /tables and one of ${FORMATS.join(', ')}.`)
  // A person runs it on the SQL page.
  if (asked !== null && askerOf(request) === 'person')
    return reply.redirect(addressOf('/sql', filter, {q: asked}), 303)
  const isSafe = known === 'csv' && query.get('exact') === null
  // A workbook contains the time it was written, so its ETag is weak.
  const etag = `${known === 'xlsx' ? 'W/' : ''}"${hash('sha256', [release.manifest.release_id, request.caller.only, name, asked, isSafe, addressOf('', filter)].join('\n')).slice(0, 32)}"`
  const begin = () =>
    reply
      .header('etag', etag)
      .header('cache-control', 'private, no-cache')
      .type(CONTENT_TYPES.get(`.${known}`) ?? '')
      .header('content-disposition', `attachment; filename="${table}-${release.manifest.as_of}.${known}"`)
  if (request.headers['if-none-match'] === etag) return begin().code(304).send()
  if (whole && known === 'parquet' && filter.condition === undefined) {
    const path = join(release.dir, whole.file)
    await requireIntact(path, whole)
    return begin().send(createReadStream(path))
  }
  const columns = whole?.order.map(quoteName) ?? []
  const order = columns.length === 0 ? '' : `order by ${columns.join(', ')}`
  const file = `${randomUUID()}.${known}`
  const path = join(filesDir, file)
  let isWritten = false
  const written = download({
    sql: asked ?? `from ${table} ${order}`,
    file: {name: file, format: known, title: table, isSafe},
  })
  reply.raw.once('close', () => rmSync(path, {force: true}))
  const {socket} = request.raw
  // The engine may sort for minutes before the first row.
  socket.setTimeout(0)
  const ended = Promise.allSettled([written]).then(() => {
    isWritten = true
    socket.setTimeout(request.server.server.timeout)
  })
  while (!isWritten && sizeOf(path) < FIRST_BYTES) await Promise.race([ended, setTimeout(LOOK_MS)])
  // A failure by now gets an error page; a later one breaks off the answer.
  if (isWritten) await written
  if (isWritten) reply.header('content-length', sizeOf(path))
  // A slow reader is cut off at once, not at the end of a partial file.
  written.catch(() => reply.raw.destroy())
  async function* readBytes(): AsyncGenerator<Buffer> {
    await using opened = await open(path)
    for (;;) {
      const wasWritten = isWritten
      const {buffer, bytesRead} = await opened.read(Buffer.allocUnsafe(256 * 1024))
      if (bytesRead > 0) yield buffer.subarray(0, bytesRead)
      else if (wasWritten) break
      else await Promise.race([ended, setTimeout(LOOK_MS)])
    }
    await written
  }
  return begin().send(Readable.from(readBytes()))
}

const sizeOf = (path: string) => statSync(path, {throwIfNoEntry: false})?.size ?? 0
