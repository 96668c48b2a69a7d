import {expect, test} from 'vitest'
import {z} from 'zod'
import {type Database, openDatabase} from '../../src/warehouse/database.ts'
import {allowWidth, limitLoad, withEnoughMemory} from '../../src/warehouse/load-memory.ts'

const lengthRow = z.object({length: z.coerce.number()})

/** Holds 100 MB at once, which nothing can spill. */
const LONG_TEXT = `select strlen(string_agg(repeat('x', 1000000), '')) as length from range(100)`

async function limitOf(db: Database): Promise<string> {
  const {limit} = await db.one(
    z.object({limit: z.string()}),
    `select current_setting('memory_limit') as "limit"`,
  )
  return limit
}

test('work that needs more memory than a load has is done again with more', async () => {
  await using db = await openDatabase({threads: 1})
  await limitLoad(db)
  const before = await limitOf(db)
  await expect(db.one(lengthRow, LONG_TEXT)).rejects.toThrow(/out of memory/i)
  let times = 0
  const {length} = await withEnoughMemory(db, () => {
    times += 1
    return db.one(lengthRow, LONG_TEXT)
  })
  expect(length).toBe(100_000_000)
  expect(times).toBeGreaterThan(1)
  expect(await limitOf(db)).not.toBe(before)
})

test('another failure is not tried again', async () => {
  await using db = await openDatabase()
  await limitLoad(db)
  let times = 0
  const work = () => {
    times += 1
    return db.run('select * from nowhere')
  }
  await expect(withEnoughMemory(db, work)).rejects.toThrow(/nowhere/)
  expect(times).toBe(1)
})

test('what all the memory of the machine is too little for fails as the engine says', async () => {
  await using db = await openDatabase({threads: 1})
  await limitLoad(db)
  const failing = () => Promise.reject(new Error('Out of Memory Error: failed to allocate data'))
  await expect(withEnoughMemory(db, failing)).rejects.toThrow('failed to allocate data')
})

test('wide rows raise the limit, common ones after them do not lower it', async () => {
  await using db = await openDatabase()
  await limitLoad(db)
  const common = await limitOf(db)
  await allowWidth(db, 400)
  expect(await limitOf(db)).toBe(common)
  await allowWidth(db, 20_000)
  const wide = await limitOf(db)
  expect(wide).not.toBe(common)
  await allowWidth(db, 400)
  expect(await limitOf(db)).toBe(wide)
})
