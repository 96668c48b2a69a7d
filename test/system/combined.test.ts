import {mkdtempDisposableSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {proveCombined, requireSame} from '../proof/combined.ts'
import {createClickhouse} from '../support/clickhouse.ts'
import {runProgram} from '../support/lab.ts'

const seed = process.env.PROOF_SEED ?? String(Date.now())

test(`marts over all lenders are those of one lender, and sums of those of several (seed ${seed})`, {
  timeout: 300_000,
}, async () => {
  const {figures} = await proveCombined({runs: 2, seed})
  expect(figures['cells of one lender']).toBeGreaterThan(1000)
})

test("two lenders' demos in one ClickHouse, command by command, are what both are together", async () => {
  await using server = await createClickhouse()
  using root = mkdtempDisposableSync(join(tmpdir(), 'loantape-demos-'))
  const env = {
    LOANTAPE_LOG_LEVEL: 'error',
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
  // In cents: the sums of these are exact.
  const figures = names.map((name) => `cast(${name} * 100 as bigint) as ${name}_100`)
  const told: unknown[][] = []
  for (const [index, source] of ['east', 'west'].entries()) {
    const at = ['--data', join(root.path, source)]
    await start(source, 'demo', ...at, '--seed', String(index), '--deals', `${index + 3}0`, '--days', '2')
    await start(source, 'publish', 'clickhouse', ...at)
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
  expect(sums[0]).toBe(7000)
})
