import {cpSync} from 'node:fs'
import {expect, test} from 'vitest'
import {DEFAULT_MAPPING} from '../../src/accounting/mapping.ts'
import {trueUp} from '../../src/books/true-up.ts'
import {openBooks, setAccounts} from '../support/books.ts'
import {aDeal, createLab} from '../support/lab.ts'
import {OPERATOR, PAGE_TABLES, serveLab, textOf, VIEWER} from './side.ts'

test('the page of a month shows what its export would issue, then that it is issued', async () => {
  await using lab = await createLab({tables: PAGE_TABLES, deals: [aDeal(1), aDeal(2)]})
  await lab.walk('2026-03-02T23:30:00-05:00')
  lab.service.store.update('deal_000001', {status: 'funded'})
  await lab.sync('2026-03-03T23:30:00-05:00')
  const env = {...lab.env, LOANTAPE_NOW: '2026-03-04T12:00:00-05:00'}
  await using side = await serveLab(lab, {now: env.LOANTAPE_NOW})
  const read = () => side.read('/books/2026-03?for=quickbooks')
  expect(await read()).toContain('loantape accounting init')
  expect(await lab.run(['accounting', 'init'], env)).toMatchObject({code: 0})
  expect(await read()).toContain('in angle brackets')
  setAccounts(lab.folder)
  const shown = await read()
  expect(textOf(shown)).toContain('All $350,000.00 $350,000.00 2')
  expect(shown).toContain(`quickbooks_${/2026-03-[0-9a-f]{12}/.exec(shown)?.[0]}.csv begins`)
  expect(shown).toMatch(/1090 Funding clearing.*1200 Loans receivable/s)
  const [batch] = /2026-03-[0-9a-f]{12}/.exec(shown) ?? []
  expect(await side.read()).not.toContain('not issued to')
  const issued = await lab.run(['export', 'quickbooks', '--period', '2026-03', '--json'], env)
  expect(JSON.parse(issued.stdout)).toMatchObject({batches: [{batch_id: batch, outcome: 'written', rows: 2}]})
  expect(await read()).toContain(`All of it is issued; the last batch was <a href="/books/${batch}">`)
  expect(await side.readText('/books')).toContain(
    'Balances of what was issued Profile Account Called Debits Credits Balance quickbooks 1090 Funding clearing $0.00 $350,000.00 −$350,000.00 quickbooks 1200 Loans receivable $350,000.00 $0.00 $350,000.00',
  )

  expect(await side.read('/books')).toContain(`href="/books/${batch}"`)
  const handedOut = await side.read(`/books/${batch}`)
  const [, entry] = /entry=(\w[\w-]+)"/.exec(handedOut) ?? []
  expect(textOf(handedOut)).toContain('quickbooks All $350,000.00 $350,000.00 2')
  expect(textOf(handedOut)).toMatch(/Batch 2026-03.* profile quickbooks .*1090 Funding clearing.*deal_000001/)
  const found = `/books/${batch}?entry=${entry}`
  for (const q of [entry, batch]) expect(await side.read(`/find?q=${q}`)).toContain(`href="/books/${batch}`)
  expect(await side.read(`/find?q=${entry}`)).toContain(`href="${found}"`)
  for (const q of [`[${batch}]`, entry?.toLowerCase(), entry?.slice(0, 9)])
    expect(await side.read(`/find?${new URLSearchParams({q: String(q)})}`)).toContain(`href="/books/${batch}`)
  await using guarded = await serveLab(lab, {
    now: env.LOANTAPE_NOW,
    webToken: OPERATOR,
    webViewerToken: VIEWER,
  })
  expect(await guarded.readText(`/find?q=${entry}`, VIEWER)).toMatch(/Journal .* LT2603.* deal_000001/)
  expect(await side.readText(found)).toContain('All 2 lines of the batch')
  expect(await side.readText(`/books/${batch}?entry=x`)).toContain('It has no such entry.')
  expect((await side.get('/books/2026-03-000000000000')).status).toBe(404)

  lab.service.store.update('deal_000002', {status: 'funded'})
  await lab.sync('2026-03-31T23:30:00-04:00')
  expect(await side.read()).not.toContain('not issued to')
  await using nextDay = await serveLab(lab, {now: '2026-04-01T09:00:00-04:00'})
  expect(await nextDay.readText()).toContain('1 entry of $350,000.00 of 2026-03 is not issued to quickbooks')
  expect(await nextDay.read('/books')).toContain('Close 2026-03')

  lab.service.store.insert([aDeal(3, {status: 'funded'})])
  await lab.sync('2026-04-30T23:30:00-04:00')
  await using nextMonth = await serveLab(lab, {now: '2026-05-01T09:00:00-04:00'})
  expect(await nextMonth.readText(), 'one line for all months').toContain(
    '2 entries of $700,000.00 of 2026-03 to 2026-04 are not issued to quickbooks',
  )
})

test('behind the opening of the first month stands what was funded at the first walk, whatever happened that day; Books says for whom it is booked', async () => {
  await using lab = await createLab({tables: PAGE_TABLES, deals: [aDeal(1), aDeal(2, {status: 'funded'})]})
  await lab.walk('2026-03-02T09:00:00-05:00')
  lab.service.store.update('deal_000001', {status: 'funded'})
  lab.service.store.update('deal_000002', {status: 'paid_off'})
  await lab.sync('2026-03-02T11:00:00-05:00')
  await using side = await serveLab(lab)
  const behind = await side.read('/behind/opening?month=2026-03')
  expect(behind).toContain('deal_000002')
  expect(behind).not.toContain('deal_000001')
  await lab.run(['accounting', 'init'])
  setAccounts(lab.folder)
  const issue = async (...args: string[]) => {
    expect((await lab.run(['export', ...args, '--period', '2026-03'])).code).toBe(0)
    return await side.readText('/books')
  }
  expect(await issue('netsuite')).not.toContain('Opening balances are booked for')
  expect(await issue('xero', '--with-opening')).toContain('Opening balances are booked for xero.')
})

test('the numbers in the files of a true-up are found, with what the files hold and what it stands for', async () => {
  using before = openBooks()
  await before.walk('2026-01-05', {deal_1: {status: 'draft'}, deal_2: {status: 'draft'}})
  using books = openBooks(before)
  const funded = {deal_1: {status: 'funded', loan_amount: 5}, deal_2: {status: 'funded', loan_amount: 3}}
  await books.walk('2026-01-25', funded)
  const [first] = await books.export('xero', '2026-01', '2026-01-26')
  cpSync(before.folder.warehouse, books.folder.warehouse)
  await books.walk('2026-02-03', {deal_1: {status: 'funded', loan_amount: 7}, deal_2: {status: 'draft'}})
  const {profiles} = await trueUp(books.config, {isIssued: true, why: null}, books.at('2026-02-04'))
  expect((await books.run('build', '2026-02-04')).code).toBe(0)
  const [id, taken] = [profiles[0]?.batch?.batch_id ?? '', first?.batch_id ?? '']
  const numbersOf = (batch: string) =>
    new Map(
      Object.values(books.readBatches('xero', batch))
        .flat()
        .map(({deal, number, memo}) => [deal, {number, memo}]),
    )
  const [was, now] = [numbersOf(taken), numbersOf(id)]
  const [anew, gone] = [now.get('deal_1'), now.get('deal_2')]
  expect(anew?.memo).toContain(`Reverses ${was.get('deal_1')?.number}, books ${anew?.number}`)
  expect(gone?.memo).toContain(`Reverses ${was.get('deal_2')?.number}`)
  await using lab = await createLab()
  await using side = await serveLab(lab, {folder: books.folder, dataDir: books.folder.root})
  for (const number of [anew?.number, gone?.number])
    expect(await side.read(`/find?q=${number}`)).toContain(`/books/${id}?entry=${number}`)
  books.map({...DEFAULT_MAPPING, receivable: {'*': {code: '1300', name: 'Loans'}}})
  const [later] = await books.export('xero', '2026-02', '2026-02-05')
  const memos = Object.values(books.readBatches('xero', later?.batch_id ?? '')).flat()
  const reversal = expect.stringMatching(`Reverses ${anew?.number}: Funding deal_1.*, in a true-up`)
  expect(memos).toContainEqual(expect.objectContaining({account: '1200', memo: reversal}))
  const says = 'A true-up: its files hold'
  const page = await side.readText(`/books/${id}`)
  expect(page).toContain(says)
  expect(page).toMatch(/deal_1 1200 Loans receivable \$2\.00 /)
  expect(page).toMatch(/deal_2 1090 Funding clearing \$3\.00 /)
  expect(await side.readText(`/books/${taken}`)).not.toContain(says)
})
