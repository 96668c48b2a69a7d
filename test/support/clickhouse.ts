import {type ChildProcess, spawn} from 'node:child_process'
import {once} from 'node:events'
import {mkdtempDisposableSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {createClient} from '@clickhouse/client'
import {openClickhouse} from '../../src/export/clickhouse.ts'
import {openSession} from '../../src/export/clickhouse-layout.ts'
import {publishTo} from '../../src/export/publish.ts'
import type {Release} from '../../src/store/release.ts'
import {anyRow, createWorldAt} from './data.ts'
import {intercept} from './file-operations.ts'

const ROOT = join(import.meta.dirname, '../..')
const PYTHON = join(ROOT, 'node_modules/.cache/python/bin/python3')

/** An empty ClickHouse engine behind HTTP on loopback; disposing it stops it and removes its data. */
export type ClickhouseServer = Awaited<ReturnType<typeof createClickhouse>>

/** Returns SQL for what readers see of a lender's release made by `publishNth`: both tables in one statement. */
export const seenSql = (source: string): string =>
  `select count() as deals, min(deal.nth) as least, max(deal.nth) as most, any(summary.nth) as nth, any(summary.deals) as told
   from core.deal as deal inner join mart.portfolio_summary as summary on summary.source = deal.source
   where deal.source = '${source}'`

/** Returns the rows of {@link seenSql} if readers see all of the nth release. */
export const wholeOf = (nth: number, deals = 2000): Record<string, number>[] => [
  {deals, least: nth, most: nth, nth, told: deals},
]

let awaited: {when: 'before' | 'after'; begin: string; act: () => Promise<unknown>} | undefined

const {prototype} = createClient({}).constructor as {prototype: object}
for (const method of ['command', 'exec', 'query'])
  intercept(prototype, method, async (go, [asked]) => {
    const {query} = asked as {query: string}
    const met = awaited && query.trimStart().startsWith(awaited.begin) ? awaited : undefined
    if (met) awaited = undefined
    if (met?.when === 'before') await met.act()
    const answer = await go()
    if (met?.when === 'after') await met.act()
    return answer
  })

/** Acts once, before or after the next statement of this process that begins so. */
export function actAt(when: 'before' | 'after', begin: string, act: () => Promise<unknown>): void {
  awaited = {when, begin, act}
}

export async function publishAs(
  {request}: ClickhouseServer,
  source: string,
  release: Release,
): Promise<void> {
  const world = createWorldAt('2026-02-02T12:00:00Z')
  await using target = await openClickhouse({...request, source}, world)
  await publishTo(target, release, {command: 'loantape publish clickhouse', folderId: source}, world)
}

export async function createClickhouse() {
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
    query: (sql: string) => session.rows(anyRow, sql),
    run: (sql: string) => session.run(sql),
    async [Symbol.asyncDispose]() {
      await session[Symbol.asyncDispose]()
      const gone = once(server, 'exit')
      server.stdin?.end()
      await gone
      folder.remove()
    },
  }
}
