import assert from 'node:assert/strict'
import {mkdirSync, mkdtempDisposableSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {buildRelease} from '../../src/build/build.ts'
import {compareTotals} from '../../src/export/clickhouse-combined.ts'
import {openSession} from '../../src/export/clickhouse-layout.ts'
import {type Release, readReleaseModels, requireRelease} from '../../src/store/release.ts'
import {type ClickhouseServer, createClickhouse, publishAs} from '../support/clickhouse.ts'
import {createGrowingFolder} from './nights.ts'
import {type ProofRequest, type Proved, prove} from './proof.ts'

const NIGHTS = 6

/**
 * Publishes random histories to ClickHouse. With one lender, every table over all lenders equals the lender's own, row by row;
 * with several, every additive column is the sum of theirs. The SQL over all is rewritten for another engine, so each is an
 * oracle of the other. A run is one, two or three lenders.
 */
export async function proveCombined(request: ProofRequest): Promise<Proved> {
  await using server = await createClickhouse()
  return await prove('combined', request, async ({run, random, add}) => {
    using root = mkdtempDisposableSync(join(tmpdir(), 'loantape-combined-'))
    if (run > (request.first ?? 0)) await server.run('truncate table loantape.published')
    const lenders = 1 + (run % 3)
    for (let lender = 0; lender < lenders; lender += 1) {
      const place = join(root.path, String(lender))
      mkdirSync(place)
      const {config, folder, grow} = createGrowingFolder(place, random)
      let world = await grow()
      for (let night = 1; night < NIGHTS; night += 1) world = await grow()
      await buildRelease(config, {}, world)
      await publishAs(server, `lender_${run}_${lender}`, requireRelease(folder))
      if (lender === 0) add('cells of one lender', await requireSame(server, `lender_${run}_0`))
      else add('sums of several lenders', await requireSums(server, requireRelease(folder)))
    }
    add('histories', lenders)
  })
}

/** Requires the tables over all lenders to equal those of the only lender. @returns how many cells were compared */
export async function requireSame(server: ClickhouseServer, source: string): Promise<number> {
  const views = await server.query(`select name from system.tables where database = 'fleet' order by name`)
  assert.ok(views.length >= 13, `${views.length} tables over all`)
  let cells = 0
  for (const {name} of views) {
    const rows = await server.query(`select * from fleet.\`${String(name)}\``)
    // In tables over all lenders, deal ids are prefixed with their lender.
    const textOf = ({source: _, ...row}: Record<string, unknown>) =>
      JSON.stringify(row).replace(`"deal_id":"${source}/`, '"deal_id":"')
    const [own, all] = [
      rows.filter((row) => row.source === source),
      rows.filter((row) => row.source === '(all)'),
    ]
    assert.deepEqual(all.map(textOf).sort(), own.map(textOf).sort(), `fleet.${String(name)}`)
    assert.equal(own.length + all.length, rows.length)
    cells += own.reduce((sum, row) => sum + Object.keys(row).length - 1, 0)
  }
  return cells
}

/** Requires every additive column over all lenders to be the sum of theirs. @returns how many sums were compared */
async function requireSums(server: ClickhouseServer, {dir}: Release): Promise<number> {
  await using session = openSession(server.request, new AbortController().signal)
  const models = (readReleaseModels(dir) ?? []).map(({name, grain, adds_up}) => ({
    name,
    grain,
    addsUp: adds_up,
  }))
  const totals = await compareTotals(session, models)
  assert.ok(totals.length > 25, `${totals.length} sums`)
  for (const {table, column, together, sum} of totals) assert.equal(together, sum, `${table}.${column}`)
  return totals.length
}
