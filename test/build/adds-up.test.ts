import {join} from 'node:path'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {advanceDay, seedPortfolio} from '../../src/service/portfolio.ts'
import {quoteName} from '../../src/store/database.ts'
import {
  openForQuestions,
  type ReleaseModel,
  readReleaseModels,
  requireRelease,
} from '../../src/store/release.ts'
import {readColumns} from '../../src/store/sql.ts'
import {createDealSet} from '../../src/web/deal-set.ts'
import {anyRow} from '../support/data.ts'
import {useLab} from '../support/set-up.ts'

const lab = await useLab({tables: 'all'})
const {store} = lab.service
seedPortfolio(store, {deals: 80, seed: 'parts', today: '2026-03-02'})
await lab.walk('2026-03-02T23:30:00-05:00')
for (const day of ['2026-03-31', '2026-04-09']) {
  advanceDay(store, {seed: 'parts', day})
  if (day === '2026-04-09') for (const id of store.ids('funded').slice(0, 2)) store.remove(id)
  await lab.walk(`${day}T23:30:00-04:00`)
}
await lab.sync('2026-04-10T23:30:00-04:00')

const openSets = () =>
  openForQuestions(requireRelease(lab.folder), {withWork: true, spillDir: join(lab.folder.cache, 'spill')})

/** A model whose column is published wider than its SQL makes it, as a build does. */
const OWN: ReleaseModel = {
  ...{name: 'risk.share', description: '', grain: [], adds_up: [], is_per_deal: false, is_published: true},
  columns: [{name: 'share', type: 'DECIMAL(38,4)', meaning: ''}],
  reads: ['core.deal'],
  sql: 'select cast(count(*) as decimal(9, 4)) as share from core.deal',
}

/** Returns SQL that sums a table's additive columns by its grain; rows whose sums are all zero are left out. @param from the rows to sum */
function buildSumsSql({grain, adds_up}: ReleaseModel, from: string): string {
  const sums = adds_up.map((column) => `coalesce(sum(${quoteName(column)}), 0)::decimal(38, 2)`)
  const moved = sums.map((sum) => `${sum} <> 0`).join(' or ')
  return `select ${[...grain.map(quoteName), ...sums].join(', ')} from (${from}) group by all having ${moved}`
}

test('additive columns add up over the parts by status, in every table that declares them', async () => {
  const models = readReleaseModels(requireRelease(lab.folder).dir)
  const summed = models.filter(({adds_up}) => adds_up.length > 0)
  expect(summed.length).toBeGreaterThan(14)
  await using db = await openSets()
  const {buckets} = await db.one(
    z.object({buckets: z.array(z.string())}),
    `select list(bucket)::varchar[] as buckets from release.mart.portfolio_breakdown where dimension = 'status'`,
  )
  expect(buckets.length).toBeGreaterThan(1)
  const isOf = (bucket: string) =>
    `deal.deal_id in (select deal_id from kept.work.deal_standing where to_day is null and status = '${bucket}')`
  for (const [index, condition] of ['true', ...buckets.map(isOf)].entries()) {
    const set = await createDealSet(db, models, {catalog: `set${index}`, condition})
    await set.require(summed.map(({name}) => name))
  }
  for (const model of summed) {
    const parts = buckets.map((_, index) => `from set${index + 1}.${model.name}`)
    const [whole, sum] = [`from set0.${model.name}`, parts.join(' union all ')].map(
      (from) => `(${buildSumsSql(model, from)})`,
    )
    const differing = `(${whole} except all ${sum}) union all (${sum} except all ${whole})`
    expect(await db.all(anyRow, differing), model.name).toEqual([])
  }
})

test('a set of most deals, like one of few, holds the rows of its deals in every table of deals', async () => {
  const models = [...readReleaseModels(requireRelease(lab.folder).dir), OWN]
  await using db = await openSets()
  const {deals: vanished} = await db.one(
    z.object({deals: z.coerce.number()}),
    `select count(*) as deals from release.core.deal_history where change = 'vanished' and valid_to is null`,
  )
  expect(vanished).toBeGreaterThan(1)
  const stored = await db.column(
    z.string(),
    `select concat_ws('.', database_name, schema_name, table_name) from duckdb_columns() where column_name = 'deal_id'`,
  )
  const ofDeals = models
    .filter(({is_per_deal}) => is_per_deal)
    .map(({name, is_published}) => ({name, table: `${is_published ? 'release' : 'kept'}.${name}`}))
    .filter(({table}) => stored.includes(table))
  expect(ofDeals.length).toBeGreaterThan(14)
  const published = models.filter(({is_published}) => is_published)
  const conditions = {
    most: `deal.status <> 'draft'`,
    valued: 'deal.ltv < 9',
    few: `deal.status = 'draft'`,
    all: 'true',
    none: 'false',
  }
  for (const [catalog, condition] of Object.entries(conditions)) {
    const set = await createDealSet(db, models, {catalog: `set_of_${catalog}`, condition})
    await set.require([...ofDeals, ...published].map(({name}) => name))
    for (const {name, table} of ofDeals) {
      const ids = `select deal_id from release.core.deal as deal where ${condition}`
      const [own, those] = [`(from set_of_${catalog}.${name})`, `(from ${table} where deal_id in (${ids}))`]
      const differing = `(${own} except all ${those}) union all (${those} except all ${own})`
      expect(await db.all(anyRow, differing), `${catalog}: ${name}`).toEqual([])
    }
    for (const {name, columns} of published) {
      const types = (await readColumns(db, `set_of_${catalog}.${name}`)).map(({type}) => type)
      expect(types, `${catalog}: ${name}`).toEqual(columns.map(({type}) => type))
    }
  }
})
