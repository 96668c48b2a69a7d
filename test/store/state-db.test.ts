import {cpSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {migrateStateDb, openStateDb, STATE_MIGRATIONS} from '../../src/store/state-db.ts'
import {createFolder} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'

test('a state database of a later version, no database, or one that cannot be written is refused and left as it is', async () => {
  using data = createFolder()
  const {stateDb: path, root} = data.folder
  const openAt = (place: string) => failureOf((async () => openStateDb(place))())
  {
    using stateDb = openStateDb(path)
    // A server that runs on while another version is installed takes no slot from it.
    using served = openStateDb(path, {isServed: true})
    stateDb.db.exec('pragma user_version = 1000')
    expect(await failureOf((async () => served.run('delete from job_run'))())).toMatchObject({
      code: 'DATA_NEWER',
    })
    expect(await openAt(path)).toMatchObject({code: 'DATA_NEWER', exitCode: 1})
    expect(stateDb.db.prepare('pragma user_version').get()).toEqual({user_version: 1000})
  }

  const foreign = join(root, 'foreign.sqlite')
  const text = 'not a database, but long enough to be taken for the header of one'
  writeFileSync(foreign, text)
  const unreadable = await openAt(foreign)
  expect(unreadable).toMatchObject({code: 'STATE_UNREADABLE', exitCode: 1})
  expect(unreadable.message).toContain(`State database '${foreign}' cannot be read: file is not a database.`)
  expect(unreadable.message).toMatch(/next command computes it again from the tapes/)
  expect(readFileSync(foreign, 'utf8')).toBe(text)

  const nowhere = join(root, 'not-there', 'state.sqlite')
  const unwritable = await openAt(nowhere)
  expect(unwritable).toMatchObject({code: 'NOT_WRITABLE', exitCode: 2})
  expect(unwritable.message).toContain(
    `State database '${nowhere}' cannot be written: unable to open database file.`,
  )
})

test('a migration is applied once, and stored data stays', () => {
  using data = createFolder()
  using stateDb = openStateDb(data.folder.stateDb)
  stateDb.insert('remapped_period', {period: '2026-01'})
  const next = join(data.folder.root, 'next')
  cpSync(STATE_MIGRATIONS, next, {recursive: true})
  writeFileSync(join(next, '9999_why.sql'), "alter table remapped_period add column why text default 'none';")
  for (let time = 0; time < 2; time += 1) migrateStateDb(stateDb, next)
  expect(stateDb.db.prepare('select * from remapped_period').all()).toEqual([
    {period: '2026-01', why: 'none'},
  ])
})
