import {mkdtempDisposableSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {compareTotals, createCombined} from '../../src/export/clickhouse-combined.ts'
import {openSession} from '../../src/export/clickhouse-layout.ts'
import {proveCombined, requireSame} from '../proof/combined.ts'
import {createClickhouse} from '../support/clickhouse.ts'
import {DAY_3, runProgram} from '../support/lab.ts'

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

test('sums count the ages that every lender has whole, and a difference is found', async () => {
  await using server = await createClickhouse()
  await using session = openSession(server.request, new AbortController().signal)
  for (const sql of [
    'create database loantape',
    'create database fleet',
    'create table loantape.release (source String, as_of Date32) engine = MergeTree order by source',
    "insert into loantape.release values ('east', '2026-03-10'), ('west', '2026-04-02')",
    'create table fleet.funding_curve (source String, cohort_month String, age_months Int64, deals Int64) engine = MergeTree order by source',
    // Only West covers all of March.
    `insert into fleet.funding_curve values
       ('east', '2026-01', 0, 5), ('(all)', '2026-01', 0, 5), ('west', '2026-02', 1, 7), ('(all)', '2026-02', 1, 9)`,
    'create table fleet.own_curve (source String, age_months Int64, deals Int64) engine = MergeTree order by source',
  ])
    await server.run(sql)
  const addsUp = ['deals']
  const compare = () =>
    compareTotals(session, [
      {name: 'mart.funding_curve', grain: ['cohort_month', 'age_months'], addsUp},
      {name: 'own.curve', grain: ['age_months'], addsUp},
    ])
  const own = {table: 'fleet.own_curve', column: 'deals', together: '0', sum: '0'}
  const curve = {table: 'fleet.funding_curve', column: 'deals', sum: '5'}
  expect(await compare()).toEqual([{...curve, together: '5'}, own])
  await server.run("insert into fleet.funding_curve values ('(all)', '2026-01', 1, 1)")
  expect(await compare()).toEqual([{...curve, together: '6'}, own])
})

test("a lender without another's column leaves the other's totals as they are", async () => {
  await using server = await createClickhouse()
  await using session = openSession(server.request, new AbortController().signal)
  for (const database of ['core', 'risk']) await server.run(`create database ${database}`)
  await server.run("create view core.fact as select 'east' as source, 'deal_1' as deal_id, 1 as a, 2 as b")
  for (const own of ['a', 'b']) {
    const name = `risk.by_${own}`
    await server.run(`create view ${name} as select source, ${own}, 1 as deals from core.fact`)
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
      sql: `select ${own}, count(*) as deals from total.\`core.fact\` group by ${own}`,
      grain: [own],
      reads: ['core.fact'],
      columns: [columnOf(own), columnOf('deals')],
      adds_up: [],
      is_per_deal: false,
      is_published: true,
    }
    await createCombined(session, {models: [model], tables: [fact]})
  }
  const rows = await server.query(
    "select a, toString(deals) as deals from fleet.risk_by_a where source = '(all)'",
  )
  expect(rows.map(({a}) => Number(a))).toEqual([1])
  expect(await server.query('select deal_id from total.`core.fact`')).toEqual([{deal_id: 'east/deal_1'}])
})
