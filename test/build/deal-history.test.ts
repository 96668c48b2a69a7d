import {expect, test} from 'vitest'
import {aVersion} from '../../src/build/case-rows.ts'
import {query} from './history.ts'

const versions =
  'select version, change, loan_amount, property_value, loan_program, status from core.deal_history'

test('carries an absent field and keeps an explicit null', async () => {
  const history = {
    versions: [
      aVersion({day: '2026-03-02', property_value: '200000', loan_program: 'bridge'}),
      aVersion({day: '2026-03-03', status: 'approved'}),
      aVersion({day: '2026-03-04', property_value: null}),
      aVersion({day: '2026-03-05', loan_amount: '7'}),
    ],
  }
  const rows = await query(history, 'select property_value, loan_program from core.deal_history')
  expect(rows).toEqual([
    {property_value: '200000.00', loan_program: 'bridge'},
    {property_value: '200000.00', loan_program: 'bridge'},
    {property_value: null, loan_program: 'bridge'},
    {property_value: null, loan_program: 'bridge'},
  ])
})

test('a missing row is no version, and its optional columns change nothing', async () => {
  const history = {
    versions: [
      aVersion({day: '2026-03-02', property_value: '200000'}),
      aVersion({day: '2026-03-03', kind: 'missing', loan_amount: '1'}),
      aVersion({day: '2026-03-04'}),
    ],
  }
  expect(await query(history, versions)).toEqual([
    {
      version: '1',
      change: 'created',
      loan_amount: '100000.00',
      property_value: '200000.00',
      loan_program: null,
      status: 'draft',
    },
  ])
})

test('orders observations of one instant by seq', async () => {
  const history = {versions: [aVersion({seq: 2, status: 'funded'}), aVersion({seq: 1, status: 'approved'})]}
  expect(await query(history, 'select status from core.deal_history')).toEqual([
    {status: 'approved'},
    {status: 'funded'},
  ])
})

test('as_of counts whole business days, known_at what had been stored', async () => {
  const history = {
    versions: [
      aVersion({day: '2026-03-02', loan_amount: '1'}),
      aVersion({day: '2026-03-03', loan_amount: '2', recorded_at: '2026-03-09 00:00:00'}),
      aVersion({day: '2026-03-05', loan_amount: '3', recorded_at: '2026-03-09 00:00:01'}),
    ],
  }
  const amount = 'select loan_amount from core.deal'
  expect(await query(history, amount, {asOf: '2026-03-02'})).toEqual([{loan_amount: '1.00'}])
  expect(await query(history, amount, {asOf: '2026-03-04'})).toEqual([{loan_amount: '2.00'}])
  expect(await query(history, amount, {knownAt: '2026-03-08 00:00:00'})).toEqual([{loan_amount: '1.00'}])
  expect(await query(history, amount, {knownAt: '2026-03-09 00:00:00'})).toEqual([{loan_amount: '2.00'}])
})
