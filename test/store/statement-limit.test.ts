import {afterAll, beforeAll, expect, test} from 'vitest'
import {type Cut, type Database, openDatabase, withinLimits} from '../../src/store/database.ts'

const ENDLESS = 'select count(*) from range(10000000) as a, range(10000000) as b where a.range + b.range = -1'

let db: Database

beforeAll(async () => {
  db = await openDatabase()
})

afterAll(() => db[Symbol.asyncDispose]())

const explain = (cut: Cut) => new Error(`cut: ${cut}`)
const unlimited = {limitMs: 60_000, signal: new AbortController().signal}

test('a statement that takes too long is interrupted, and the connection stays usable', async () => {
  await expect(withinLimits(db, {...unlimited, limitMs: 20}, () => db.run(ENDLESS), explain)).rejects.toThrow(
    'cut: time',
  )
  await expect(withinLimits(db, unlimited, () => db.run('select 1'), explain)).resolves.toBeUndefined()
})

test('the running statement is interrupted when the process is asked to stop', async () => {
  const stopping = new AbortController()
  const limits = {...unlimited, signal: stopping.signal}
  const work = withinLimits(db, limits, () => db.run(ENDLESS), explain)
  setImmediate(() => stopping.abort(new Error('SIGTERM')))
  await expect(work).rejects.toThrow('cut: stopped')
  await expect(withinLimits(db, limits, () => db.run('select 1'), explain)).rejects.toThrow('cut: stopped')
})

test('a later statement of the work is interrupted, too', async () => {
  const work = async () => {
    for (;;) await db.run('select 1')
  }
  await expect(withinLimits(db, {...unlimited, limitMs: 20}, work, explain)).rejects.toThrow('cut: time')
})

test('work that runs out of memory is distinguished from other failures', async () => {
  await using small = await openDatabase()
  await small.run(`set memory_limit = '20MB'; set temp_directory = ''`)
  const sort = () =>
    small.run('create table t as select range as n, uuid() as u from range(3000000) order by u')
  await expect(withinLimits(small, unlimited, sort, explain)).rejects.toThrow('cut: memory')
  await expect(withinLimits(small, unlimited, () => small.run('selec 1'), explain)).rejects.toThrow(
    /syntax error/,
  )
})
