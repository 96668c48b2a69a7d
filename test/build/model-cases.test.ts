import {symlinkSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {testModels} from '../../src/build/cases.ts'
import {parseConfig} from '../../src/core/config.ts'
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
