import {type ChildProcess, spawn} from 'node:child_process'
import {once} from 'node:events'
import {mkdtempDisposableSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import type {ClickhouseRequest} from '../../src/export/clickhouse.ts'
import {openSession} from '../../src/export/clickhouse-layout.ts'
import {anyRow} from './data.ts'

const ROOT = join(import.meta.dirname, '../..')
const PYTHON = join(ROOT, 'node_modules/.cache/python/bin/python3')

/** ClickHouse's engine behind HTTP on loopback, empty; disposing it ends it and removes its data. */
export interface ClickhouseServer extends AsyncDisposable {
  request: Pick<ClickhouseRequest, 'url' | 'user' | 'password'>
  /** The rows of a query, as JSON. */
  query(sql: string): Promise<Record<string, unknown>[]>
  run(sql: string): Promise<void>
}

/** What readers see of a lender's release made by `publishNth`, both tables in one statement. */
export const seenSql = (source: string): string =>
  `select count() as deals, min(deal.nth) as least, max(deal.nth) as most, any(summary.nth) as nth, any(summary.deals) as told
   from core.deal as deal inner join mart.portfolio_summary as summary on summary.source = deal.source
   where deal.source = '${source}'`

/** The same if they see all of the nth release. */
export const wholeOf = (nth: number, deals = 2000): Record<string, number>[] => [
  {deals, least: nth, most: nth, nth, told: deals},
]

/** Starts it. */
export async function createClickhouse(): Promise<ClickhouseServer> {
  const folder = mkdtempDisposableSync(join(tmpdir(), 'loantape-clickhouse-'))
  const server: ChildProcess = spawn(PYTHON, [join(ROOT, 'test/system/clickhouse-server.py'), folder.path], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const [port] = (await once(server.stdout as NodeJS.EventEmitter, 'data')) as [Buffer]
  const request = {
    url: `http://127.0.0.1:${port.toString().trim()}`,
    user: 'loantape',
    password: 'secret of the tests',
  }
  const session = openSession(request, new AbortController().signal)
  return {
    request,
    query: (sql) => session.rows(anyRow, sql),
    run: (sql) => session.run(sql),
    async [Symbol.asyncDispose]() {
      await session[Symbol.asyncDispose]()
      const gone = once(server, 'exit')
      server.stdin?.end()
      await gone
      folder.remove()
    },
  }
}
