import {createReadStream} from 'node:fs'
import {createClient} from '@clickhouse/client'
import {z} from 'zod'
import {codeOf, LoantapeError, messageOf, newError} from '../errors.ts'

/** A connection to ClickHouse; disposing it closes it. */
export type Session = ReturnType<typeof openSession>

/** Tables of some millions of rows are checked and sent whole. */
const REQUEST_MS = 3_600_000

/** Opens a connection over HTTP or HTTPS; nothing is asked yet. */
export function openSession(
  {url, user, password}: {url: string; user?: string | undefined; password?: string | undefined},
  signal: AbortSignal,
) {
  const {host, pathname} = new URL(url)
  const server = `${host}${pathname.replace(/\/$/, '')}`
  const client = createClient({
    url,
    ...(user !== undefined && {username: user}),
    ...(password !== undefined && {password}),
    application: 'loantape',
    request_timeout: REQUEST_MS,
    keep_alive: {enabled: false},
    log: {level: 127},
    clickhouse_settings: {
      // As other engines have it: text of nothing is nothing.
      cast_keep_nullable: 1,
      // A statement has happened, on every replica, when it ends.
      alter_sync: '2',
      mutations_sync: '2',
      lightweight_deletes_sync: '2',
      distributed_foreground_insert: 1,
      distributed_ddl_task_timeout: '300',
      wait_end_of_query: 1,
      // What was dropped and is sent again is no duplicate.
      insert_deduplicate: 0,
      async_insert: 0,
    },
  })
  async function explained<T>(ask: () => Promise<T>): Promise<T> {
    try {
      return await ask()
    } catch (error) {
      throw explainClickhouse(error, server)
    }
  }
  return {
    /** `host:port` */
    server,
    /** Runs a statement that has no rows. */
    run: (query: string): Promise<void> =>
      explained(async () => {
        await client.command({query, abort_signal: signal})
      }),
    /** The rows of a query; whole numbers of 64 bits and decimals arrive as texts. */
    async rows<T>(row: z.ZodType<T>, query: string): Promise<T[]> {
      const found = await explained(async () => {
        const result = await client.query({query, format: 'JSONEachRow', abort_signal: signal})
        return await result.json()
      })
      return z.array(row).parse(found)
    },
    /** Runs an INSERT whose data is this file. */
    send: (query: string, path: string): Promise<void> =>
      explained(async () => {
        const values = createReadStream(path)
        const {stream} = await client.exec({query, values, abort_signal: signal})
        stream.resume()
        await new Promise((resolve, reject) => stream.once('end', resolve).once('error', reject))
      }),
    [Symbol.asyncDispose]: () => client.close(),
  }
}

/** Anything thrown while publishing, in our words. Codes: `system.errors` of ClickHouse. */
function explainClickhouse(error: unknown, server: string): LoantapeError {
  if (error instanceof LoantapeError) return error
  const code = codeOf(error)
  const words = messageOf(error).split('\n')[0] ?? ''
  const more = {cause: error}
  if (/^(516|192|193|194)$/.test(code))
    return newError('PUBLISH_AUTH', `ClickHouse at ${server} refused user or password (${code}).`, more)
  if (/^(497|164)$/.test(code))
    return newError('PUBLISH_PRIVILEGE', `ClickHouse at ${server} refused: ${words} (${code}).`, more)
  if (/^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT)$/.test(code))
    return newError('PUBLISH_UNREACHABLE', `ClickHouse at ${server} cannot be reached (${code}).`, more)
  if (/^(ECONNRESET|EPIPE|UND_ERR_.*)$/.test(code) || /timeout error|socket hang up|aborted/i.test(words))
    return newError('PUBLISH_LOST', `The connection to ClickHouse at ${server} was lost.`, more)
  return newError('PUBLISH_FAILED', `ClickHouse at ${server} refused: ${words} (${code}).`, more)
}

/** Whether ClickHouse refused a statement because a table of that name is there. */
export function isThereAlready(error: unknown): boolean {
  return error instanceof LoantapeError && codeOf(error.cause) === '57'
}
