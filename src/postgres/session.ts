import {Client} from 'pg'
import {z} from 'zod'
import {describeServer, explainPostgres} from './failure.ts'

/** A connection to PostgreSQL; disposing it ends it. */
export type Session = Awaited<ReturnType<typeof openSession>>

const CONNECT_MS = 15_000

/**
 * Connects to the server a URL names.
 *
 * @throws AuthError `PUBLISH_AUTH`; DeferredError `PUBLISH_UNREACHABLE`
 */
export async function openSession(url: string) {
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
    /** `host:port/database` */
    server,
    /** Runs one or more statements. */
    async run(sql: string): Promise<void> {
      await client.query(sql)
    },
    /** The values of a query that has one column. */
    async column<T>(value: z.ZodType<T>, sql: string, values: unknown[] = []): Promise<T[]> {
      const {rows} = await client.query<unknown[]>({text: sql, values, rowMode: 'array'})
      return rows.map(([found]) => value.parse(found))
    },
    /** The first row of a query whose columns are all texts; empty without one. */
    async row(sql: string): Promise<string[]> {
      const {rows} = await client.query<unknown[]>({text: sql, rowMode: 'array'})
      return z.array(z.string()).parse(rows[0] ?? [])
    },
    /** Ends it, also when it is lost: a statement under way fails. */
    [Symbol.asyncDispose]: () => client.end(),
  }
}
