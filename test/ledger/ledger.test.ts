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
