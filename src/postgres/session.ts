import {Client} from 'pg'
import type {z} from 'zod'
import {describeServer, explainPostgres} from './failure.ts'

/** A connection to PostgreSQL; disposing it ends it. */
export interface Session extends AsyncDisposable {
  readonly client: Client
  /** `host:port/database` */
  readonly server: string
  run(sql: string): Promise<void>
  all<T>(row: z.ZodType<T>, sql: string, params?: unknown[]): Promise<T[]>
  /** Ends it, also when it is lost: a statement under way fails. */
  end(): Promise<void>
}

const CONNECT_MS = 15_000

/**
 * Connects to the server a URL names.
 *
 * @throws AuthError `POSTGRES_AUTH`; DeferredError `POSTGRES_UNREACHABLE`
 */
export async function openSession(url: string): Promise<Session> {
  const server = describeServer(url)
  const client = new Client({
    connectionString: url,
    application_name: 'loantape',
    connectionTimeoutMillis: CONNECT_MS,
    keepAlive: true,
  })
  // A connection that breaks fails the statement under way; without this it would end the process, too.
  client.on('error', () => undefined)
  try {
    await client.connect()
  } catch (error) {
    await client.end()
    throw explainPostgres(error, server)
  }
  return {
    client,
    server,
    async run(sql) {
      await client.query(sql)
    },
    async all(row, sql, params) {
      const {rows} = await client.query(sql, params)
      return rows.map((values) => row.parse(values))
    },
    end: () => client.end(),
    [Symbol.asyncDispose]: () => client.end(),
  }
}
