import {readdirSync} from 'node:fs'
import {join} from 'node:path'
import {describe, expect, test} from 'vitest'
import {builtInPlan} from './history.ts'
import {readModelCases, runModelCase} from './model-case.ts'

const FOLDER = join(import.meta.dirname, '../models')
const files = readdirSync(FOLDER).filter((name) => name.endsWith('.yaml'))
const {plan} = await builtInPlan()

test('every published model has its cases in test/models/<schema>.<table>.yaml', () => {
  const models = plan.models.filter(({isPublished}) => isPublished).map(({name}) => `${name}.yaml`)
  expect(models.filter((name) => !files.includes(name))).toEqual([])
})

for (const {table, cases} of files.map((name) => readModelCases(join(FOLDER, name)))) {
  describe(table, () => {
    test('has cases, and is a model', () => {
      expect(cases).not.toEqual([])
      expect(plan.models.map(({name}) => name)).toContain(table)
    })
    test.concurrent.each(cases)('%s', async (_name, tested) => {
      expect(await runModelCase(table, tested, plan)).toEqual(tested.rows)
    })
  })
}
