import {join} from 'node:path'
import {expect, test} from 'vitest'
import {readRawColumns} from '../../src/model/case-schema.ts'
import {readCases} from '../../src/model/read-cases.ts'
import {runCases} from '../../src/model/run-cases.ts'
import {listFiles} from '../../src/warehouse/sql-file.ts'
import {builtInPlan, ZONE} from './history.ts'

const files = listFiles(join(import.meta.dirname, '../models'), '.yaml')
const {plan} = await builtInPlan()
const results = await runCases(readCases(files, {plan, raw: await readRawColumns()}), plan, {zone: ZONE})

test('every published model has its cases in test/models/<schema>.<table>.yaml', () => {
  const tested = new Set(results.map(({table}) => table))
  const models = plan.models.filter(({name, isPublished}) => isPublished && !tested.has(name))
  expect(models.map(({name}) => name)).toEqual([])
})

test.each(results.map((result) => [`${result.table}: ${result.name}`, result] as const))(
  '%s',
  (_name, result) => {
    const same = {problem: null, missing: [], unexpected: [], different: [], misplaced: null}
    expect(result).toMatchObject(same)
  },
)
