import {expect, test} from 'vitest'
import {addDays} from '../../src/core/clock.ts'
import {findBusinessDay, isFederalHoliday} from '../../src/schedule/slots.ts'

const holidaysOf = (year: number) =>
  Array.from({length: 366}, (_, index) => addDays(`${year}-01-01`, index)).filter(
    (day) => day.startsWith(String(year)) && isFederalHoliday(day),
  )

// https://www.frbservices.org/about/holiday-schedules
test('the holidays of 2027 are those of the Federal Reserve', () => {
  const weekdays = holidaysOf(2027).filter((day) => ![0, 6].includes(new Date(day).getUTCDay()))
  expect(weekdays).toEqual([
    '2027-01-01',
    '2027-01-18',
    '2027-02-15',
    '2027-05-31',
    '2027-07-05',
    '2027-09-06',
    '2027-10-11',
    '2027-11-11',
    '2027-11-25',
  ])
})

test('the third business day skips weekends and holidays', () => {
  expect(findBusinessDay('2026-06', 3, 'us-federal')).toBe('2026-06-03')
  expect(findBusinessDay('2026-09', 5, 'us-federal')).toBe('2026-09-08')
  expect(findBusinessDay('2027-01', 3, 'us-federal')).toBe('2027-01-06')
  expect(findBusinessDay('2027-01', 3, undefined)).toBe('2027-01-05')
})
