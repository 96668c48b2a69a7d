import {mkdtempDisposableSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {parseSelects} from '../../src/build/compile.ts'
import {compareTotals, createCombined} from '../../src/export/clickhouse-combined.ts'
import {openSession} from '../../src/export/clickhouse-layout.ts'
import {toClickhouseSql} from '../../src/export/clickhouse-sql.ts'
import {openDatabase} from '../../src/store/database.ts'
import {proveCombined, requireSame} from '../proof/combined.ts'
import {createClickhouse} from '../support/clickhouse.ts'
import {DAY_3, failureOf, runProgram} from '../support/lab.ts'

test('marts over all lenders are those of a single lender, and the sums of several', {
  timeout: 300_000,
}, async () => {
  const {figures} = await proveCombined({runs: 2, seed: '2026'})
  expect(figures['cells of one lender']).toBeGreaterThan(1000)
  expect(figures['sums of several lenders']).toBeGreaterThan(25)
})

test("two lenders' demos in one ClickHouse, command by command, add up to both together", async () => {
  await using server = await createClickhouse()
  using root = mkdtempDisposableSync(join(tmpdir(), 'loantape-demos-'))
  const env = {
    LOANTAPE_LOG_LEVEL: 'error',
    LOANTAPE_NOW: DAY_3,
    LOANTAPE_CLICKHOUSE_URL: server.request.url,
    LOANTAPE_CLICKHOUSE_USER: 'loantape',
    LOANTAPE_CLICKHOUSE_PASSWORD: 'secret of the tests',
  }
  const start = async (source: string, ...args: string[]) => {
    const ended = await runProgram(args, {...env, LOANTAPE_CLICKHOUSE_SOURCE: source}, root.path)
    expect(ended, args.join(' ')).toMatchObject({code: 0, stderr: ''})
    return ended.stdout
  }
  const names = ['deals', 'amount', 'funded_deals', 'funded_amount']
  // In cents, so that sums are exact.
  const figures = names.map((name) => `cast(${name} * 100 as bigint) as ${name}_100`)
  const told: unknown[][] = []
  for (const [index, source] of ['east', 'west'].entries()) {
    const at = ['--data', join(root.path, source)]
    await start(source, 'demo', ...at, '--seed', String(index), '--deals', `${index + 3}0`, '--days', '2')
    // Tables that only the totals need are sent, too, but not counted as the release's.
    expect(await start(source, 'publish', 'clickhouse', ...at)).toMatch(/: \d+ tables, [\d,]+ rows\.\n$/)
    expect(await start(source, 'publish', 'clickhouse', ...at)).toContain('is already published at 127.0.0.1')
    if (source === 'east') expect(await requireSame(server, source)).toBeGreaterThan(1000)
    const sql = `select ${figures.join(', ')} from mart.portfolio_summary`
    const [, line = ''] = (await start(source, 'query', ...at, '--format', 'csv', sql)).split('\n')
    told.push([source, ...line.split(',').map(Number)])
  }
  expect(JSON.parse(await start('east', 'fleet', 'verify', '--json'))).toMatchObject({differing: 0})
  const shown = await server.query(
    `select source, ${figures.join(', ')} from fleet.portfolio_summary order by source`,
  )
  const sums = figures.map((_, index) => told.reduce((sum, row) => sum + Number(row[index + 1]), 0))
  expect(shown.map(({source, ...row}) => [source, ...Object.values(row).map(Number)])).toEqual([
    ['(all)', ...sums],
    ...told,
  ])
  expect(sums[0]).toBe(7100)
})

test('sums count the days, months and ages that every lender has whole, and a difference is found', async () => {
  await using server = await createClickhouse()
  await using session = openSession(server.request, new AbortController().signal)
  for (const sql of ['create database loantape', 'create database fleet']) await server.run(sql)
  const kinds: [whole: string, beyond: string, together?: string, sum?: string][] = [
    [`toDate32('2026-03-10') as day`, `toDate32('2026-03-11') as day`],
    [`'2026-02' as month`, `'2026-03' as month`],
    [`toDate32('2026-02-28') as month_end`, `toDate32('2026-03-31') as month_end`],
    [`'2026-01' as cohort_month, 1 as age_months`, `'2026-02' as cohort_month, 1 as age_months`],
    [`'2026-01' as cohort_month, 1 as months_on_book`, `'2026-02' as cohort_month, 1 as months_on_book`],
    [`'2026-03' as month`, `'2026-03' as month`, '0', '0'],
    [`'2026-04' as cohort_month`, `'2026-04' as cohort_month`, '0.014', '0.012'],
  ]
  const models: {name: string; grain: string[]; addsUp: string[]}[] = [
    {name: 'own.missing', grain: [], addsUp: ['points']},
    {name: 'own.of_0', grain: [], addsUp: []},
    {name: 'own.of_east', grain: [], addsUp: ['points']},
  ]
  await server.run("create view fleet.own_of_east as select '(all)' as source, 1 as points")
  const tables = ['own.missing', ...kinds.map((_, index) => `own.of_${index}`)]
  const contents = (source: string, more: string[] = []) =>
    `[${[...tables, ...more].map((table) => `'${source}/${table}/sha256/1'`).join(', ')}] as contents`
  // Only West covers all of March.
  await server.run(
    `create view loantape.release as
     select 'east' as source, toDate32('2026-03-10') as as_of, ${contents('east', ['own.of_east'])}
     union all
     select 'west', toDate32('2026-04-02'), ${contents('west')}`,
  )
  const rowOf = (source: string, at: string, thousandths: number) =>
    `select '${source}' as source, ${at}, toNullable(toDecimal64('0.00${thousandths}', 3)) as points`
  for (const [index, [whole, beyond]] of kinds.entries()) {
    const rows = [
      rowOf('east', whole, 5),
      rowOf('(all)', whole, 5),
      rowOf('west', beyond, 7),
      rowOf('(all)', beyond, 9),
    ]
    await server.run(`create view fleet.own_of_${index} as ${rows.join(' union all ')}`)
    const grain = [...whole.matchAll(/ as (\w+)/g)].map(([, column = '']) => column)
    models.push({name: `own.of_${index}`, grain, addsUp: ['points']})
  }
  expect(await compareTotals(session, models)).toEqual(
    kinds.map(([, , together = '0.005', sum = '0.005'], index) => {
      return {table: `fleet.own_of_${index}`, column: 'points', together, sum}
    }),
  )
})

async function rewrite(sql: string): Promise<string> {
  await using db = await openDatabase({threads: 1})
  const selects = await parseSelects(db, [{name: 'a', file: 'a.sql', sql}])
  return await toClickhouseSql(db, selects.get('a')?.statements[0])
}

test("a lender without another's column leaves the other's totals as they are, and no two tables get one name", async () => {
  await using server = await createClickhouse()
  await using session = openSession(server.request, new AbortController().signal)
  for (const database of ['core', 'risk']) await server.run(`create database ${database}`)
  await server.run("create view core.fact as select 'east' as source, 'deal_1' as deal_id, 1 as a, 2 as b")
  for (const own of ['a', 'b']) {
    const name = `risk.by_${own}`
    const odd = `null as none, toDate32('1969-05-01') as month`
    await server.run(`create view ${name} as select source, ${own}, 1 as deals, ${odd} from core.fact`)
    const columnOf = (column: string, type = 'BIGINT') => ({name: column, type, meaning: ''})
    const about = {description: '', order: [], file: '', sha256: '', totals: []}
    const fact = {
      ...about,
      schema: 'core',
      name: 'fact',
      columns: [columnOf('deal_id', 'VARCHAR'), columnOf(own)],
    }
    const model = {
      ...about,
      name,
      sql: await rewrite(
        `select ${own}, count(*) as deals, max(1) filter (where ${own} > 9) as none,
           date_trunc('month', date '1969-05-07') as month
         from core.fact group by ${own}`,
      ),
      grain: [own],
      reads: ['core.fact'],
      columns: [columnOf(own), columnOf('deals'), columnOf('none'), columnOf('month', 'DATE')],
      adds_up: [],
      is_per_deal: false,
      is_published: true,
    }
    await createCombined(session, {models: [model], tables: [fact]})
    const twice = {models: [model, {...model, name: `mart.risk_by_${own}`}], tables: [fact]}
    expect(await failureOf(createCombined(session, twice))).toMatchObject({
      code: 'CLICKHOUSE_TYPE',
      message: expect.stringContaining(`'fleet.risk_by_${own}'`),
    })
  }
  const rows = await server.query(
    "select toString(a) as a, none, toString(month) as month from fleet.risk_by_a where source = '(all)'",
  )
  expect(rows).toEqual([{a: '1', none: null, month: '1969-05-01'}])
  expect(await server.query('select deal_id from total.`core.fact`')).toEqual([{deal_id: 'east/deal_1'}])
})
