import {expect, test} from 'vitest'
import {buildModels} from '../../src/build/build-models.ts'
import {type Database, openDatabase} from '../../src/store/database.ts'
import {migrate} from '../../src/store/warehouse.ts'
import {anyRow} from '../support/data.ts'
import {builtInPlan, ZONE} from './history.ts'

/** A join the engine can only do by comparing every row with every other: minutes for 100,000 deals. */
const COMPARES_ALL = /BLOCKWISE_NL_JOIN/

async function isQuadratic(db: Database, sql: string): Promise<boolean> {
  return COMPARES_ALL.test(JSON.stringify(await db.all(anyRow, `explain ${sql}`)))
}

test('no model joins by comparing every row with every other', async () => {
  await using db = await openDatabase({
    attach: [
      {path: ':memory:', alias: 'release'},
      {path: ':memory:', alias: 'history'},
    ],
  })
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
