import {existsSync, readdirSync, readFileSync, renameSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {hasStateDb, openStateDb} from '../../src/state/state-db.ts'
import {createFolder} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'

test('a state database that a later version has written is refused and left as it is', async () => {
  using data = createFolder()
  using stateDb = openStateDb(data.folder.stateDb)
  const readVersion = () => stateDb.db.prepare('pragma user_version').get()
  stateDb.db.exec('pragma user_version = 1000')
  const failure = await failureOf((async () => openStateDb(data.folder.stateDb))())
  expect(failure).toMatchObject({code: 'STATE_NEWER', exitCode: 1})
  expect(readVersion()).toEqual({user_version: 1000})
})

test('a state database that is no database is named, left alone, and what it is needed for is said', async () => {
  using data = createFolder()
  writeFileSync(data.folder.stateDb, 'not a database, but long enough to be taken for the header of one')
  const failure = await failureOf((async () => openStateDb(data.folder.stateDb))())
  expect(failure).toMatchObject({code: 'STATE_UNREADABLE', exitCode: 1})
  expect(failure.message).toContain(
    `State database '${data.folder.stateDb}' cannot be read: file is not a database.`,
  )
  expect(failure.message).toMatch(/latest backup .* journals would be issued a second time/)
  expect(readFileSync(data.folder.stateDb, 'utf8')).toContain('not a database')
})

test('a state database that cannot be opened for writing is a matter of rights', async () => {
  using data = createFolder()
  const path = join(data.folder.root, 'not-there', 'state.sqlite')
  const failure = await failureOf((async () => openStateDb(path))())
  expect(failure).toMatchObject({code: 'STATE_NOT_WRITABLE', exitCode: 2})
  expect(failure.message).toContain(
    `State database '${path}' cannot be written: unable to open database file.`,
  )
  expect(failure.message).toContain('the user that the data folder belongs to')
})

test('the database of an earlier version is taken over with what its log holds, once', () => {
  using data = createFolder()
  const {root, stateDb: path} = data.folder
  const former = join(root, 'ledger.sqlite')
  const rows = 'select count(*) as rows from learnt_rate'
  {
    using before = openStateDb(path)
    before.insert('learnt_rate', {base_url: 'https://a.example', rate_per_second: 2.5, learnt_at: 1})
    // As a process that was killed leaves it: the last rows stand in the log alone.
    before.db.exec('pragma wal_checkpoint(truncate)')
    before.insert('learnt_rate', {base_url: 'https://b.example', rate_per_second: 5, learnt_at: 1})
    for (const end of ['', '-wal', '-shm']) renameSync(`${path}${end}`, `${former}${end}`)
  }
  expect(hasStateDb(path)).toBe(true)
  using taken = openStateDb(path)
  expect(taken.db.prepare(rows).get()).toEqual({rows: 2})
  using again = openStateDb(path)
  expect(again.db.prepare(rows).get()).toEqual({rows: 2})
  expect(existsSync(former)).toBe(false)
  expect(readdirSync(root).filter((name) => name.startsWith('ledger'))).toEqual([])
})
