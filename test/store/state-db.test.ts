import {cpSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {migrateStateDb, openStateDb, STATE_MIGRATIONS} from '../../src/store/state-db.ts'
import {createFolder} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'

test('a state database written by a later version is refused and left as it is', async () => {
  using data = createFolder()
  using stateDb = openStateDb(data.folder.stateDb)
  const readVersion = () => stateDb.db.prepare('pragma user_version').get()
  stateDb.db.exec('pragma user_version = 1000')
  const failure = await failureOf((async () => openStateDb(data.folder.stateDb))())
  expect(failure).toMatchObject({code: 'DATA_NEWER', exitCode: 1})
  expect(readVersion()).toEqual({user_version: 1000})
})

test('a state file that is not a database is named and left alone, and its purpose explained', async () => {
  using data = createFolder()
  writeFileSync(data.folder.stateDb, 'not a database, but long enough to be taken for the header of one')
  const failure = await failureOf((async () => openStateDb(data.folder.stateDb))())
  expect(failure).toMatchObject({code: 'STATE_UNREADABLE', exitCode: 1})
  expect(failure.message).toContain(
    `State database '${data.folder.stateDb}' cannot be read: file is not a database.`,
  )
  expect(failure.message).toMatch(/next command computes it again from the tapes/)
  expect(readFileSync(data.folder.stateDb, 'utf8')).toContain('not a database')
})

test('a state database that cannot be opened for writing is a matter of permissions', async () => {
  using data = createFolder()
  const path = join(data.folder.root, 'not-there', 'state.sqlite')
  const failure = await failureOf((async () => openStateDb(path))())
  expect(failure).toMatchObject({code: 'NOT_WRITABLE', exitCode: 2})
  expect(failure.message).toContain(
    `State database '${path}' cannot be written: unable to open database file.`,
  )
  expect(failure.message).toContain('the user that the data folder belongs to')
})

test('a migration is applied once, and stored data stays', () => {
  using data = createFolder()
  using stateDb = openStateDb(data.folder.stateDb)
  stateDb.insert('remapped_period', {period: '2026-01'})
  const next = join(data.folder.root, 'next')
  cpSync(STATE_MIGRATIONS, next, {recursive: true})
  writeFileSync(join(next, '0002_why.sql'), "alter table remapped_period add column why text default 'none';")
  for (let time = 0; time < 2; time += 1) migrateStateDb(stateDb, next)
  expect(stateDb.db.prepare('select * from remapped_period').all()).toEqual([
    {period: '2026-01', why: 'none'},
  ])
})
