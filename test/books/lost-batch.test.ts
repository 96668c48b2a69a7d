import {cpSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {BOOK_TABLES, setAccounts} from '../support/books.ts'
import {aDeal, createLab} from '../support/lab.ts'

test('after a restore the last batches in it are named, and batches given up are to be deleted in the books', async () => {
  await using lab = await createLab({tables: BOOK_TABLES, deals: [aDeal(1), aDeal(2), aDeal(3)]})
  const beside = (name: string) => join(lab.folder.root, '..', name)
  const run = async (now: string, ...args: string[]) => {
    const {code, stdout, stderr} = await lab.run(args, {LOANTAPE_NOW: now})
    expect([args, code, stderr]).toEqual([args, 0, expect.anything()])
    return stdout
  }
  const issue = async (deal: string, day: string) => {
    lab.service.store.update(deal, {status: 'funded'})
    await lab.sync(`${day}T23:30:00-05:00`)
    const told = await run(`${day}T23:40:00-05:00`, 'export', 'quickbooks', '--period', '2026-03')
    return `quickbooks/${/batch (\S+),/.exec(told)?.[1]}`
  }
  await lab.walk('2026-03-02T23:30:00-05:00')
  await run('2026-03-03T00:00:00-05:00', 'accounting', 'init')
  setAccounts(lab.folder)
  await issue('deal_000003', '2026-03-03')
  const last = await issue('deal_000001', '2026-03-04')
  await run('2026-03-04T23:50:00-05:00', 'backup', beside('saved'))
  const second = await issue('deal_000002', '2026-03-05')
  cpSync(lab.folder.exports, beside('exports'), {recursive: true})
  rmSync(lab.folder.root, {recursive: true})

  const now = '2026-03-06T23:30:00-05:00'
  expect(await run(now, 'restore', beside('saved'))).toContain(`Last journal batch in it: ${last}.`)
  cpSync(beside('exports'), lab.folder.exports, {recursive: true})
  const warning = `Delete what your books imported of ${second}: what it held is issued again.`
  expect(await run(now, 'tape', 'go-on', '--why', 'the disk died')).toContain(warning)
  await lab.sync(now)
  expect(await run(now, 'period', 'true-up')).toContain(warning)
})
