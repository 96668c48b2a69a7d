import {readFile} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {renderReleaseColumns} from '../../scripts/release-columns.ts'
import {
  compileAnew,
  compileModels,
  formatPlan,
  keyOfPlan,
  type ModelSource,
  SHIPPED_PLAN,
} from '../../src/build/compile.ts'
import {BUILT_IN_SQL, readModels} from '../../src/build/read-models.ts'
import {readSeeds} from '../../src/build/seeds.ts'
import {readSources} from '../../src/build/sources.ts'
import {parseConfig} from '../../src/core/config.ts'

function readSource(change: (sql: string) => string = (sql) => sql): ModelSource {
  const names = ['work.deal_observation', 'core.deal_history']
  const models = readModels([BUILT_IN_SQL]).filter(({name}) => names.includes(name))
  const seeds = readSeeds([BUILT_IN_SQL])
  return {models: models.map((model) => ({...model, sql: change(model.sql)})), seeds, checks: []}
}

test('a plan is compiled once per process, and again if its source changes', async () => {
  const plans = new Map<string, string>()
  const compile = (source: ModelSource) => compileModels(source, {plans})
  const compiled = await compile(readSource())
  expect(await compile(readSource())).toEqual(compiled)
  expect(plans.size).toBe(1)
  const [[key = '', text = ''] = []] = plans
  const other = {...JSON.parse(text), columns: [['core.deal_history', [{name: 'told', type: 'VARCHAR'}]]]}
  plans.set(key, JSON.stringify(other))
  expect((await compile(readSource())).columns.get('core.deal_history')).toHaveLength(1)
  expect(await compile(readSource((sql) => `${sql} `))).toMatchObject({reads: compiled.reads})
  expect(plans.size).toBe(2)
})

test("the shipped plan and the pages' column list match the shipped models: `npm run docs` writes both", async () => {
  const config = parseConfig({LOANTAPE_DATA_DIR: tmpdir()}, {readFile: () => ''})
  const sources = readSources(config, [])
  const plan = await compileAnew(sources)
  const text = formatPlan(keyOfPlan(sources), plan)
  expect(await readFile(SHIPPED_PLAN, 'utf8')).toBe(`${text}\n`)
  const columns = join(import.meta.dirname, '../../src/build/release-columns.ts')
  expect(await readFile(columns, 'utf8')).toBe(renderReleaseColumns(plan))

  // Whatever the accounts are.
  const seeds = sources.seeds.map((seed) => (seed.isComputed ? {...seed, text: 'others', rows: []} : seed))
  expect(formatPlan(keyOfPlan(sources), await compileModels({...sources, seeds}))).toBe(text)
})

test('sources that do not compile leave no plan', async () => {
  const plans = new Map<string, string>()
  const source = readSource((sql) => sql.replaceAll('loan_amount', 'loan_amuont'))
  await expect(compileModels(source, {plans})).rejects.toThrow()
  expect(plans.size).toBe(0)
})
