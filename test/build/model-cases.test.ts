import {symlinkSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {aRow, insertHistory} from '../../src/build/case-rows.ts'
import {testModels} from '../../src/build/cases.ts'
import {parseConfig} from '../../src/core/config.ts'
import {openDatabase} from '../../src/store/database.ts'
import {migrate} from '../../src/store/warehouse.ts'
import {createFolder, createWorld} from '../support/data.ts'
import {builtInPlan} from './history.ts'

using data = createFolder()
const {root} = data.folder
symlinkSync(join(import.meta.dirname, '../models'), join(root, 'tests'))
const env = {LOANTAPE_DATA_DIR: root, LOANTAPE_SQL_DIR: root}
const {cases} = await testModels(parseConfig(env, {readFile: () => ''}), undefined, createWorld())

test('every published model has its cases in test/models/<schema>.<table>.yaml', async () => {
  const {plan} = await builtInPlan()
  const tested = new Set(cases.map(({table}) => table))
  const models = plan.models.filter(({name, isPublished}) => isPublished && !tested.has(name))
  expect(models.map(({name}) => name)).toEqual([])
})

test.each(cases.map((result) => [`${result.table}: ${result.name}`, result] as const))(
  '%s',
  (_name, result) => {
    expect(result).toMatchObject({problem: null, missing: [], unexpected: []})
  },
)

test('a deal of a case shows a field that a migration added', async () => {
  await using db = await openDatabase({attach: [{path: ':memory:', alias: 'history'}]})
  await migrate(db, 'history')
  // A column that is added may always be null.
  await db.run(
    `alter table history.raw.deal_version add column rate decimal(9, 3);
     alter table history.raw.deal_version add column rate_present boolean default false`,
  )
  await insertHistory(db, {deal_version: [aRow('deal_version', {rate: '7.125'}), aRow('deal_version')]})
  const shown = 'select rate_present from history.raw.deal_version order by seq'
  expect(await db.column(z.boolean(), shown)).toEqual([true, false])
})
