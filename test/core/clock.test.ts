import fc from 'fast-check'
import {expect, test} from 'vitest'
import {addDays, businessDateOf, formatInstant, isCalendarDate, parseInstant} from '../../src/core/clock.ts'

const newYork = {timeZone: 'America/New_York', dayCutoff: '06:00'}
const dateIn = (instant: string, zone = newYork) => businessDateOf(Date.parse(instant), zone)

test.each([
  ['the last minute before the cutoff', '2026-02-03T05:59:59.999-05:00', '2026-02-02'],
  ['the cutoff itself counts for its own day', '2026-02-03T06:00:00-05:00', '2026-02-03'],
  ['midnight counts for the day before', '2026-02-03T00:00:00-05:00', '2026-02-02'],
  ['the night of the spring change, before the cutoff', '2026-03-08T05:59:00-04:00', '2026-03-07'],
  ['the night of the spring change, at the cutoff', '2026-03-08T06:00:00-04:00', '2026-03-08'],
  ['the first 01:30 of the autumn change', '2026-11-01T01:30:00-04:00', '2026-10-31'],
  ['the second 01:30 of the autumn change', '2026-11-01T01:30:00-05:00', '2026-10-31'],
  ['the night of the autumn change, at the cutoff', '2026-11-01T06:00:00-05:00', '2026-11-01'],
  ['the morning of new year counts for the old year', '2027-01-01T05:00:00-05:00', '2026-12-31'],
])('New York: %s', (_, instant, date) => {
  expect(dateIn(instant)).toBe(date)
})

test.each([
  ['Asia/Kolkata', '06:00', '2026-02-03T00:29:59Z', '2026-02-02'],
  ['Asia/Kolkata', '06:00', '2026-02-03T00:30:00Z', '2026-02-03'],
  ['Pacific/Auckland', '06:00', '2026-07-02T18:00:00Z', '2026-07-03'],
  ['Pacific/Honolulu', '00:00', '2026-02-03T09:59:59Z', '2026-02-02'],
  ['UTC', '23:59', '2026-02-03T23:58:59Z', '2026-02-02'],
])('%s with cutoff %s: %s counts for %s', (timeZone, dayCutoff, instant, date) => {
  expect(dateIn(instant, {timeZone, dayCutoff})).toBe(date)
})

test('business dates never go backwards as time passes', () => {
  const instant = fc.integer({min: Date.parse('2025-01-01'), max: Date.parse('2029-01-01')})
  fc.assert(
    fc.property(instant, fc.nat(40 * 24 * 3_600_000), (start, later) => {
      expect(businessDateOf(start + later, newYork) >= businessDateOf(start, newYork)).toBe(true)
    }),
  )
})

test.each([
  ['2026-01-31T23:00:00Z', '2026-01-31T23:00:00.000000Z'],
  ['2026-01-31t23:00:00z', '2026-01-31T23:00:00.000000Z'],
  ['2026-01-31 23:00:00+00:00', '2026-01-31T23:00:00.000000Z'],
  ['2026-01-31T23:00Z', '2026-01-31T23:00:00.000000Z'],
  ['2026-01-31T23:00:00-05:00', '2026-02-01T04:00:00.000000Z'],
  ['2026-01-31T23:00:00+0530', '2026-01-31T17:30:00.000000Z'],
  ['2026-01-31T23:00:00.123456Z', '2026-01-31T23:00:00.123456Z'],
  ['2026-01-31T23:00:00.123456789Z', '2026-01-31T23:00:00.123456Z'],
  ['1969-12-31T23:59:59.999999Z', '1969-12-31T23:59:59.999999Z'],
])('%s is the instant %s', (text, instant) => {
  expect(formatInstant(parseInstant(text)!)).toBe(instant)
})

test.each([
  '',
  'yesterday',
  '2026-01-31',
  '2026-01-31T23:00:00',
  '2026-02-30T12:00:00Z',
  '2026-02-29T12:00:00Z',
  '2026-13-01T12:00:00Z',
  '2026-01-31T24:00:00Z',
  '2026-01-31T23:60:00Z',
  '2016-12-31T23:59:60Z',
  '2026-01-31T23:00:00+99:99',
  '2026-01-31T23:00:00.1234567890Z',
  '20260131T230000Z',
  '1770000000',
  '0000-12-31T12:00:00Z',
  '0001-01-01T00:00:00+00:01',
  '9999-12-31T23:59:59-00:01',
])("'%s' is not an instant", (text) => {
  expect(parseInstant(text)).toBeNull()
})

test('a printed instant reads back as itself', () => {
  const [first, last] = [BigInt(Date.parse('0001-01-01')) * 1000n, BigInt(Date.parse('9999-12-31')) * 1000n]
  fc.assert(
    fc.property(fc.bigInt({min: first, max: last}), (micros) => {
      expect(parseInstant(formatInstant(micros))).toBe(micros)
    }),
  )
})

test.each([
  ['2026-02-28', 1, '2026-03-01'],
  ['2028-02-28', 1, '2028-02-29'],
  ['2026-01-01', -1, '2025-12-31'],
  ['2026-03-08', 365, '2027-03-08'],
])('%s moved by %i days is %s', (date, days, moved) => {
  expect(addDays(date, days)).toBe(moved)
})

test('only a day that exists is a calendar date', () => {
  for (const day of ['2026-02-28', '2028-02-29']) expect(isCalendarDate(day)).toBe(true)
  for (const day of ['2026-02-29', '2026-00-10', '26-01-01', '2026-01-01T00:00:00Z'])
    expect(isCalendarDate(day)).toBe(false)
})
