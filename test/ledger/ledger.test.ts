import {readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {openLedger} from '../../src/ledger/ledger.ts'
import {createFolder} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'

test('a ledger that a later version has written is refused and left as it is', async () => {
  using data = createFolder()
  using ledger = openLedger(data.folder.ledger)
  const readVersion = () => ledger.db.prepare('pragma user_version').get()
  ledger.db.exec('pragma user_version = 1000')
  const failure = await failureOf((async () => openLedger(data.folder.ledger))())
  expect(failure).toMatchObject({code: 'LEDGER_NEWER', exitCode: 1})
  expect(readVersion()).toEqual({user_version: 1000})
})

test('a ledger that is no database is named, left alone, and what it is needed for is said', async () => {
  using data = createFolder()
  writeFileSync(data.folder.ledger, 'not a database, but long enough to be taken for the header of one')
  const failure = await failureOf((async () => openLedger(data.folder.ledger))())
  expect(failure).toMatchObject({code: 'LEDGER_UNREADABLE', exitCode: 1})
  expect(failure.message).toContain(`Ledger '${data.folder.ledger}' cannot be read: file is not a database.`)
  expect(failure.message).toMatch(/latest backup .* journals would be issued a second time/)
  expect(readFileSync(data.folder.ledger, 'utf8')).toContain('not a database')
})

test('a ledger that cannot be opened for writing is a matter of rights', async () => {
  using data = createFolder()
  const path = join(data.folder.root, 'not-there', 'ledger.sqlite')
  const failure = await failureOf((async () => openLedger(path))())
  expect(failure).toMatchObject({code: 'LEDGER_NOT_WRITABLE', exitCode: 2})
  expect(failure.message).toContain(`Ledger '${path}' cannot be written: unable to open database file.`)
  expect(failure.message).toContain('the user that the data folder belongs to')
})
