import {expect, test} from 'vitest'
import {DEFAULT_MAPPING} from '../../src/accounting/mapping.ts'
import {openBooks} from '../support/books.ts'

test('neither a deal unreadable at the first walk nor another spelling of funded is booked as a funding', async () => {
  using books = openBooks()
  books.map({...DEFAULT_MAPPING, opening: {code: '3900', name: 'Opening balances'}})
  await books.walk('2026-01-30', {
    old: {status: 'funded', loan_amount: 70},
    lost: {status: 'funded', loan_amount: 'much'},
  })
  await books.walk('2026-02-02', {
    old: {status: ' Funded', loan_amount: 70},
    lost: {status: 'funded', loan_amount: 100},
  })
  await books.walk('2026-02-03', {
    old: {status: 'FUNDED', loan_amount: 70},
    lost: {status: 'Funded', loan_amount: 150},
  })
  await books.export('xero', '2026-02', '2026-03-05')
  expect(books.sumBatches('xero', '2026-02')).toEqual({1200: 50_00n, 1090: -50_00n})
  await books.export('xero', '2026-02', '2026-03-05', true)
  expect(books.sumBatches('xero', '2026-02')).toEqual({1200: 150_00n, 1090: -50_00n, 3900: -100_00n})
  await books.export('xero', '2026-01', '2026-03-05', true)
  expect(books.sumBatches('xero', '2026-01')).toEqual({1200: 70_00n, 3900: -70_00n})
})
