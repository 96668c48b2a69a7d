import {mkdirSync} from 'node:fs'
import {availableParallelism} from 'node:os'
import {join} from 'node:path'
import {parseArgs} from 'node:util'
import {z} from 'zod'
import {createSilentLog} from '../../src/core/log.ts'
import {planCombined} from '../../src/export/clickhouse-combined.ts'
import {dataFolderAt} from '../../src/store/data-folder.ts'
import {openDatabase, quoteLiteral} from '../../src/store/database.ts'
import {type Release, readReleaseModels, requireRelease} from '../../src/store/release.ts'
import {createClickhouse, publishAs} from '../../test/support/clickhouse.ts'
import {VERSIONS_PER_DEAL, writeLargeHistory} from './large-history.ts'
import {runScript} from './run-process.ts'
import {makeFolder, middle, middleOf, publishSection} from './set-up.ts'

const PLAIN = `
  select count(*), sum(loan_amount), count(*) filter (where status_class = 'funded'),
    sum(loan_amount) filter (where status_class = 'funded'), max(loan_amount)
  from core.deal`

const SHOWN = [
  'portfolio_summary',
  'portfolio_breakdown',
  'portfolio_monthly',
  'concentration',
  'top_exposure',
  'position_daily',
]

/** Publishes one large release as that of many lenders, and asks for what they are together; DuckDB is asked the same of as many copies. */
export async function benchClickhouse(): Promise<void> {
  const {values} = parseArgs({
    allowPositionals: true,
    options: {
      deals: {type: 'string', default: '1000000'},
      sources: {type: 'string', default: '10'},
      write: {type: 'boolean', default: false},
    },
  })
  const [deals, sources] = [Number(values.deals), Number(values.sources)]
  using root = makeFolder()
  const folder = dataFolderAt(join(root.path, 'data'))
  mkdirSync(folder.root)
  await writeLargeHistory(folder.warehouse, deals)
  await runScript('build-run.ts', [], {LOANTAPE_DATA_DIR: folder.root})
  const release = requireRelease(folder)
  await using server = await createClickhouse()
  const publish = (source: number) => {
    process.stderr.write(`lender_${source} …\n`)
    return middleOf(1, () => publishAs(server, `lender_${source}`, release))
  }
  const published: number[] = []
  for (let source = 0; source < sources; source += 1) published.push(await publish(source))
  const again = await publish(0)
  const rows = release.manifest.tables.reduce((sum, table) => sum + table.rows, 0)
  const clickhouse = await timeQuestions(
    (sql) => server.query(sql),
    (name) => `fleet.${name} where source = '(all)'`,
  )
  const duckdb = await askDuckdb(release, sources)
  publishSection(renderSection({deals, sources, rows, published, again, clickhouse, duckdb}))
}

/** How long each question takes, ms. */
async function timeQuestions(ask: (sql: string) => Promise<unknown>, placeOf: (name: string) => string) {
  const questions = [
    ['plain', PLAIN] as const,
    ...SHOWN.map((name) => [name, `select * from ${placeOf(name)}`] as const),
  ]
  const asked = new Map<string, number>()
  for (const [name, sql] of questions) asked.set(name, await middleOf(3, () => ask(sql), 1))
  return asked
}

/** The same of as many copies of the release, in one DuckDB: tables and models are views, as they are in ClickHouse. */
async function askDuckdb(release: Release, sources: number): Promise<Map<string, number>> {
  await using db = await openDatabase({
    attach: [
      {path: release.database, alias: 'release', readOnly: true},
      {path: release.work, alias: 'kept', readOnly: true},
    ],
  })
  const tables = await db.all(
    z.object({catalog: z.string(), name: z.string(), has_deals: z.boolean()}),
    `select database_name as catalog, schema_name || '.' || table_name as name, bool_or(column_name = 'deal_id') as has_deals
     from duckdb_columns() where database_name in ('release', 'kept') group by all`,
  )
  const models = readReleaseModels(release.dir) ?? []
  const kept = tables.filter(({catalog}) => catalog === 'kept').map(({name}) => name)
  const plan = await planCombined({models, kept}, {log: createSilentLog()})
  await db.run(`set variable as_of = cast(${quoteLiteral(release.manifest.as_of)} as date)`)
  for (const schema of ['core', 'mart', 'seed', 'work']) await db.run(`create schema ${schema}`)
  const computed = plan.models.map(({name}) => name)
  const given = new Set(plan.models.flatMap(({reads}) => reads).filter((name) => !computed.includes(name)))
  for (const {catalog, name, has_deals} of tables.filter(({name}) => given.has(name))) {
    const copies = Array.from({length: name === 'seed.status' ? 1 : sources}, (_, source) => {
      const own = `${quoteLiteral(`lender_${source}/`)} || deal_id as deal_id`
      return `select * ${has_deals ? `replace (${own})` : ''} from ${catalog}.${name}`
    })
    await db.run(`create view if not exists ${name} as ${copies.join(' union all ')}`)
  }
  for (const {name} of plan.models)
    await db.run(`create view ${name} as ${models.find((model) => model.name === name)?.sql}`)
  return await timeQuestions(
    (sql) => db.all(z.unknown(), sql),
    (name) => `mart.${name}`,
  )
}

function renderSection(figures: {
  deals: number
  sources: number
  rows: number
  published: readonly number[]
  again: number
  clickhouse: ReadonlyMap<string, number>
  duckdb: ReadonlyMap<string, number>
}): string {
  const {deals, sources, rows, published, again, clickhouse, duckdb} = figures
  const seconds = (ms: number | undefined) => (ms === undefined ? '' : `${(ms / 1000).toFixed(2)} s`)
  const usual = middle(published)
  const asked = [...clickhouse].map(
    ([name, ms]) => `| ${name} | ${seconds(ms)} | ${seconds(duckdb.get(name))} |`,
  )
  return `## Many lenders in ClickHouse

\`npm run bench clickhouse -- --write\`, ${availableParallelism()} cores shared with ClickHouse's engine on one node. One release of ${deals.toLocaleString('en')} deals with ${VERSIONS_PER_DEAL} versions each is published as that of ${sources} lenders: ${rows.toLocaleString('en')}
rows each in ${seconds(usual)} (${Math.round(rows / (usual / 1000)).toLocaleString('en')} a second, checked), again with nothing new in ${seconds(again)}. Totals over all lenders, beside DuckDB over ${sources} copies:

| question | ClickHouse | DuckDB |
|---|---|---|
${asked.join('\n')}

`
}
