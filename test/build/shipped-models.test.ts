import {readFile} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {expect, test} from 'vitest'
import {buildModels, markPerDeal} from '../../src/build/build-models.ts'
import {
  compileAnew,
  compiledPlans,
  compileModels,
  formatPlan,
  keyOfPlan,
  SHIPPED_PLAN,
} from '../../src/build/compile.ts'
import {readSources} from '../../src/build/sources.ts'
import {parseConfig} from '../../src/core/config.ts'
import type {ModelSource} from '../../src/core/types.ts'
import {type Database, openDatabase} from '../../src/store/database.ts'
import {SQL_DIR} from '../../src/store/sql.ts'
import {migrate} from '../../src/store/warehouse.ts'
import {anyRow} from '../support/data.ts'
import {builtInPlan, shipped, ZONE} from './history.ts'

/** Returns the source of two shipped models, with this text added. */
function readSource(added = ''): ModelSource {
  const names = ['work.deal_observation', 'core.deal_history']
  const models = shipped.models.filter(({name}) => names.includes(name))
  return {...shipped, models: models.map((model) => ({...model, sql: `${model.sql}${added}`})), checks: []}
}

test('a plan is compiled once per process, and again if its source changes', async () => {
  compiledPlans.clear()
  const compiled = await compileModels(readSource())
  expect(await compileModels(readSource())).toEqual(compiled)
  expect(compiledPlans.size).toBe(1)
  const [[key = '', text = ''] = []] = compiledPlans
  const other = {...JSON.parse(text), columns: [['core.deal_history', [{name: 'told', type: 'VARCHAR'}]]]}
  compiledPlans.set(key, JSON.stringify(other))
  expect((await compileModels(readSource())).columns.get('core.deal_history')).toHaveLength(1)
  expect(await compileModels(readSource(' '))).toMatchObject({reads: compiled.reads})
  expect(compiledPlans.size).toBe(2)
})

test('the shipped plan matches the shipped models: `npm run docs` writes it', async () => {
  const plan = await compileAnew(shipped)
  const text = formatPlan(keyOfPlan(shipped), plan)
  expect(await readFile(SHIPPED_PLAN, 'utf8')).toBe(`${text}\n`)

  // The plan does not depend on the accounts.
  const seeds = shipped.seeds.map((seed) => (seed.isComputed ? {...seed, text: 'others', rows: []} : seed))
  expect(formatPlan(keyOfPlan(shipped), await compileModels({...shipped, seeds}))).toBe(text)
})

test('each of our models that is of deals is built for changed deals alone, those of mapped fields too', async () => {
  const field = {name: 'note_rate', path: ['rate'], type: 'varchar', meaning: '', since: null}
  const {models, reads} = await compileAnew(
    readSources(parseConfig({LOANTAPE_DATA_DIR: tmpdir()}, {readFile: () => ''}), [field]),
  )
  const ofDeals = models.filter(({isOfDeals}) => isOfDeals)
  expect(ofDeals.map(({name}) => name)).toContain('core.deal_extra')
  expect(ofDeals.filter(({isPerDeal}) => !isPerDeal)).toEqual([])
  // Models of other people may count days with raw rows, even in a folder beside ours.
  const others = models.map((model) => ({...model, file: model.file.replace(SQL_DIR, `${SQL_DIR}-own`)}))
  const marked = markPerDeal(others, reads).find(({name}) => name === 'work.deal_observation')
  expect(marked).toMatchObject({isOfDeals: true, isPerDeal: false})
})

test('the quarantine is read only through work.quarantined, which applies as_of and known_at', async () => {
  const {plan} = await builtInPlan()
  const readers = [...plan.reads, ...plan.checkReads].filter(([, read]) => read.includes('raw.quarantine'))
  expect(readers.map(([name]) => name)).toEqual(['work.quarantined'])
})

test('no model reads both deals and raw tables, so that a filter can compute what is of deals again', async () => {
  const {plan} = await builtInPlan()
  const isPerDeal = (name: string) => plan.models.some((model) => model.name === name && model.isPerDeal)
  const both = [...plan.reads].filter(
    ([name, reads]) =>
      !isPerDeal(name) && reads.some(isPerDeal) && reads.some((read) => read.startsWith('raw.')),
  )
  expect(both).toEqual([])
})

test('every published column is checked as not null, or its comment says when it is null', async () => {
  const {plan} = await builtInPlan()
  const silent = plan.models
    .filter(({isPublished}) => isPublished)
    .flatMap(({name, columns, checks}) => {
      const filled = checks.filter(({rule}) => rule === 'not_null').flatMap(({args}) => args)
      return columns
        .filter(
          (column) =>
            !filled.includes(column.name) && !/\bnull\b[^.;]* (when|where|if) /i.test(column.meaning),
        )
        .map((column) => `${name}.${column.name}`)
    })
  expect(silent).toEqual([])
})

/** A join that compares every row with every other: it takes minutes for 100,000 deals. */
const COMPARES_ALL = /BLOCKWISE_NL_JOIN/

async function isQuadratic(db: Database, sql: string): Promise<boolean> {
  return COMPARES_ALL.test(JSON.stringify(await db.all(anyRow, `explain ${sql}`)))
}

test('no model joins by comparing every row with every other', async () => {
  const attach = ['release', 'history'].map((alias) => ({path: ':memory:', alias}))
  await using db = await openDatabase({attach})
  await migrate(db, 'history')
  const {plan} = await builtInPlan()
  const found: string[] = []
  const counted = {asOf: '2026-02-02', knownAt: '2026-02-02 23:30:00', ...ZONE}
  await buildModels(db, plan, counted, {
    isDry: true,
    async around(model, build) {
      await build()
      if (await isQuadratic(db, model.sql)) found.push(model.name)
    },
  })
  expect(found).toEqual([])
  await db.run('create table a (x integer, y boolean); create table b (x integer)')
  expect(await isQuadratic(db, 'select * from a left join b on a.x = b.x and a.y')).toBe(true)
})
