import {expect, test} from 'vitest'
import {aVersion, query} from './history.ts'

const versions =
  'select version, change, loan_amount, property_value, loan_program, status from core.deal_history'

test('numbers versions and closes each with the next', async () => {
  const history = {
    versions: [aVersion({day: '2026-03-02'}), aVersion({day: '2026-03-04', status: 'funded'})],
  }
  expect(
    await query(
      history,
      'select version, change, valid_from, valid_to, business_date from core.deal_history',
    ),
  ).toEqual([
    {
      version: '1',
      change: 'created',
      valid_from: '2026-03-02 02:05:00',
      valid_to: '2026-03-04 02:05:00',
      business_date: '2026-03-02',
    },
    {
      version: '2',
      change: 'updated',
      valid_from: '2026-03-04 02:05:00',
      valid_to: null,
      business_date: '2026-03-04',
    },
  ])
})

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

test('drops rows equal to their predecessor', async () => {
  const history = {
    versions: [
      aVersion({day: '2026-03-02', loan_program: 'bridge'}),
      aVersion({day: '2026-03-03', loan_program: 'bridge'}),
      aVersion({day: '2026-03-04'}),
    ],
  }
  expect(await query(history, 'select version from core.deal_history')).toEqual([{version: '1'}])
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

test('vanishes once, with the last content, and is restored', async () => {
  const history = {
    versions: [
      aVersion({day: '2026-03-02'}),
      aVersion({day: '2026-03-03', kind: 'missing'}),
      aVersion({day: '2026-03-04', kind: 'vanished'}),
      aVersion({day: '2026-03-05', kind: 'vanished'}),
      aVersion({day: '2026-03-06', loan_amount: '5'}),
    ],
  }
  expect(await query(history, 'select change, loan_amount, business_date from core.deal_history')).toEqual([
    {change: 'created', loan_amount: '100000.00', business_date: '2026-03-02'},
    {change: 'vanished', loan_amount: '100000.00', business_date: '2026-03-04'},
    {change: 'restored', loan_amount: '5.00', business_date: '2026-03-06'},
  ])
})

test('a replayed observation takes its place in time', async () => {
  const history = {
    versions: [
      aVersion({day: '2026-03-02', loan_amount: '1'}),
      aVersion({day: '2026-03-04', loan_amount: '3', property_value: null}),
      aVersion({day: '2026-03-03', loan_amount: '2', property_value: '9', source: 'replay'}),
    ],
  }
  expect(await query(history, 'select loan_amount, property_value from core.deal_history')).toEqual([
    {loan_amount: '1.00', property_value: null},
    {loan_amount: '2.00', property_value: '9.00'},
    {loan_amount: '3.00', property_value: null},
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

test('classifies statuses by seed.status and keeps unknown ones apart', async () => {
  const history = {
    versions: [aVersion({status: 'paid_off'}), aVersion({deal_id: 'deal_2', status: 'on_the_moon'})],
  }
  expect(await query(history, 'select status_class from core.deal_history')).toEqual([
    {status_class: 'ended_funded'},
    {status_class: 'unclassified'},
  ])
})

test('field_change has one row for each changed field, in canonical text', async () => {
  const history = {
    versions: [
      aVersion({day: '2026-03-02', property_value: '200000'}),
      aVersion({day: '2026-03-03', loan_amount: '90000.5', property_value: null, status: 'funded'}),
      aVersion({day: '2026-03-04', loan_amount: '90000.5', status: 'draft'}),
    ],
  }
  expect(
    await query(history, 'select field, old_value, new_value, observed_on from core.field_change'),
  ).toEqual([
    {field: 'loan_amount', old_value: '100000.00', new_value: '90000.50', observed_on: '2026-03-03'},
    {field: 'property_value', old_value: '200000.00', new_value: null, observed_on: '2026-03-03'},
  ])
})
