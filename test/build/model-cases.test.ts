import {join} from 'node:path'
import {expect, test} from 'vitest'
import {readCases, runCases} from '../../src/build/cases.ts'
import {listFiles} from '../../src/store/sql.ts'
import {builtInPlan, ZONE} from './history.ts'

const files = listFiles(join(import.meta.dirname, '../models'), '.yaml')
const {plan} = await builtInPlan()
const results = await runCases(readCases(files, plan), {plan, zone: ZONE})

test('every published model has its cases in test/models/<schema>.<table>.yaml', () => {
  const tested = new Set(results.map(({table}) => table))
  const models = plan.models.filter(({name, isPublished}) => isPublished && !tested.has(name))
  expect(models.map(({name}) => name)).toEqual([])
})

test.each(results.map((result) => [`${result.table}: ${result.name}`, result] as const))(
  '%s',
  (_name, result) => {
    expect(result).toMatchObject({problem: null, missing: [], unexpected: []})
  },
)
