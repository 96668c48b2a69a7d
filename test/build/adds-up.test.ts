import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {afterAll, expect, test} from 'vitest'
import {z} from 'zod'
import {advanceDay, seedPortfolio} from '../../src/service/portfolio.ts'
import {type Database, quoteName} from '../../src/store/database.ts'
import {
  openForQuestions,
  type ReleaseModel,
  readReleaseModels,
  requireRelease,
} from '../../src/store/release.ts'
import {createDealSet} from '../../src/web/deal-set.ts'
import {createLab} from '../support/lab.ts'

const filesDir = mkdtempSync(join(tmpdir(), 'loantape-sets-'))

const lab = await createLab({tables: 'all'})
const {store} = lab.service
seedPortfolio(store, {deals: 80, seed: 'parts', today: '2026-03-02'})
await lab.walk('2026-03-02T23:30:00-05:00')
for (const day of ['2026-03-31', '2026-04-09']) {
  advanceDay(store, {seed: 'parts', day})
  await lab.walk(`${day}T23:30:00-04:00`)
}
await lab.sync('2026-04-10T23:30:00-04:00')

afterAll(async () => {
  rmSync(filesDir, {recursive: true})
  await lab[Symbol.asyncDispose]()
})

const row = z.record(z.string(), z.unknown())

/** The sums of a table's additive columns, by its grain; rows of nothing left out. */
async function readSums(db: Database, catalog: string, {name, grain, adds_up}: ReleaseModel) {
  const key = grain.map((column) => `cast(${quoteName(column)} as varchar)`).join(', ')
  const sums = adds_up.map(
    (column) => `cast(coalesce(sum(${quoteName(column)}), 0) as decimal(38, 2)) as ${column}`,
  )
  const rows = await db.all(
    row,
    `select concat_ws(' ', ${key}) as key, ${sums.join(', ')} from ${catalog}.${name} group by all order by key`,
  )
  return new Map(rows.map(({key, ...values}) => [String(key), Object.values(values).map(String)]))
}

const cents = (amount: string) => BigInt(amount.replace('.', ''))

test('additive columns add up over the parts by status, in every table that declares them', async () => {
  const release = requireRelease(lab.folder)
  const models = readReleaseModels(release.dir) ?? []
  const summed = models.filter(({adds_up}) => adds_up.length > 0)
  expect(summed.length).toBeGreaterThan(14)
  await using db = await openForQuestions(release, {withWork: true, spillDir: join(filesDir, 'spill')})
  const {buckets} = await db.one(
    z.object({buckets: z.array(z.string())}),
    `select list(bucket)::varchar[] as buckets from release.mart.portfolio_breakdown where dimension = 'status'`,
  )
  expect(buckets.length).toBeGreaterThan(1)
  const isOf = (bucket: string) =>
    `deal.deal_id in (select deal_id from kept.work.deal_standing where to_day is null and status = '${bucket}')`
  const conditions = ['true', ...buckets.map(isOf)]
  const sums: Map<string, string[]>[][] = []
  for (const [index, condition] of conditions.entries()) {
    const set = await createDealSet(db, models, {catalog: `set${index}`, condition})
    await set.require(summed.map(({name}) => name))
    const own: Map<string, string[]>[] = []
    for (const model of summed) own.push(await readSums(db, set.catalog, model))
    sums.push(own)
  }
  const [whole = [], ...parts] = sums
  for (const [index, {name, adds_up}] of summed.entries()) {
    const found = new Map<string, bigint[]>()
    for (const part of parts)
      for (const [key, values] of part[index] ?? []) {
        const before = found.get(key) ?? adds_up.map(() => 0n)
        found.set(
          key,
          before.map((sum, column) => sum + cents(values[column] ?? '0')),
        )
      }
    for (const [key, values] of whole[index] ?? [])
      expect(found.get(key) ?? adds_up.map(() => 0n), `${name} ${key}`).toEqual(values.map(cents))
  }
})
