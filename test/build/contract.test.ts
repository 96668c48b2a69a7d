import {expect, test} from 'vitest'
import {canonicalSql} from '../../src/store/sql.ts'
import {builtInPlan} from './history.ts'

test('models compare statuses as the load does', async () => {
  const {plan} = await builtInPlan()
  const model = plan.models.find(({name}) => name === 'work.deal_observation')
  expect(model?.sql).toContain(`'status': ${canonicalSql('status')},`)
})

test('the quarantine is read only through work.quarantined, which applies as_of and known_at', async () => {
  const {plan} = await builtInPlan()
  const readers = [...plan.reads, ...plan.checkReads].filter(([, read]) => read.includes('raw.quarantine'))
  expect(readers.map(([name]) => name)).toEqual(['work.quarantined'])
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
