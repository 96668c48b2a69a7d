import {hash} from 'node:crypto'
import {createReadStream, rmSync, statSync} from 'node:fs'
import {join} from 'node:path'
import type {FastifyReply, FastifyRequest} from 'fastify'
import {explainError} from '../errors.ts'
import {addressOf} from './filter.ts'
import {FORMATS, hasTable, orderOf} from './tables.ts'
import type {AskingView} from './view.ts'

type Format = (typeof FORMATS)[number]

const TYPES: Record<Format, string> = {
  csv: 'text/csv; charset=utf-8',
  xlsx: 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet',
  json: 'application/json',
  parquet: 'application/vnd.apache.parquet',
}

const COPIES: Record<Exclude<Format, 'xlsx'>, string> = {
  csv: 'format csv, header',
  json: 'format json, array true',
  parquet: 'format parquet, compression zstd',
}

let files = 0

/**
 * `/data/<table>.<format>`: a table of the deals that the filter means, whole and in order; `/data/query.<format>?q=…` the rows of
 * a SELECT. The ETag changes with the release and with what is asked.
 */
export async function sendData(
  view: AskingView,
  name: string,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const {reader, release, filter, query} = view
  const [, table = '', format = ''] = /^(.+)\.(\w+)$/.exec(name) ?? []
  const known = FORMATS.find((one) => one === format)
  const asked = table === 'query' ? query.get('q') : null
  if (!known || (asked === null && !hasTable(view, table)))
    return reply
      .code(404)
      .type('text/plain')
      .send(`No such data: expected a table of /tables and one of ${FORMATS.join(', ')}.\n`)
  const etag = `"${hash('sha256', [release.manifest.release_id, name, asked, addressOf('', filter)].join('\n')).slice(0, 32)}"`
  const begin = () =>
    reply
      .header('etag', etag)
      .header('cache-control', 'private, no-cache')
      .type(TYPES[known])
      .header('content-disposition', `attachment; filename="${table}-${release.manifest.as_of}.${known}"`)
  if (request.headers['if-none-match'] === etag) return begin().code(304).send()
  const whole = release.manifest.tables.find((entry) => entry.name === table)
  if (whole && known === 'parquet' && filter.condition === undefined)
    return begin().send(createReadStream(join(release.dir, whole.file)))
  files += 1
  const file = `${files}.${known}`
  const path = join(reader.filesDir, file)
  try {
    await reader.ask({
      sql: asked ?? `from ${table} ${orderOf(view, table)}`,
      condition: filter.condition,
      file: {name: file, ...(known === 'xlsx' ? {sheet: table} : {format: COPIES[known]})},
    })
    const {size} = statSync(path)
    // The file goes at once; what is read of it stays until it is read.
    const stream = createReadStream(path)
    await new Promise((resolve, reject) => stream.once('open', resolve).once('error', reject))
    return begin().header('content-length', size).send(stream)
  } catch (error) {
    const {code, message} = explainError(error)
    if (code !== 'QUERY_FAILED' && code !== 'QUERY_STOPPED') throw error
    return reply.code(400).type('text/plain').send(`${message}\n`)
  } finally {
    rmSync(path, {force: true})
  }
}
