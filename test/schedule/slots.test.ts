import {expect, test} from 'vitest'
import {addDays} from '../../src/core/clock.ts'
import {
  findBusinessDay,
  findCronProblem,
  formatLocal,
  listNextSlots,
  listSlots,
} from '../../src/schedule/slots.ts'

const NEW_YORK = 'America/New_York'
const slotsOf = (schedule: string, timeZone: string, from: string, to: string) =>
  listSlots({schedule, timeZone}, Date.parse(from), Date.parse(to)).map((instant) =>
    new Date(instant).toISOString().slice(0, 16),
  )

test('a time in the spring gap is due when the gap ends, and two times in one gap only once', () => {
  expect(slotsOf('0,30 2,3 * * *', NEW_YORK, '2027-03-14T00:00Z', '2027-03-14T12:00Z')).toEqual([
    '2027-03-14T07:00',
    '2027-03-14T07:30',
  ])
  expect(slotsOf('30 2 * * *', NEW_YORK, '2027-03-13T00:00Z', '2027-03-16T00:00Z')).toEqual([
    '2027-03-13T07:30',
    '2027-03-14T07:00',
    '2027-03-15T06:30',
  ])
})

test('a time in the repeated hour of autumn is due the first time only', () => {
  expect(slotsOf('30 1 * * *', NEW_YORK, '2026-10-31T12:00Z', '2026-11-03T00:00Z')).toEqual([
    '2026-11-01T05:30',
    '2026-11-02T06:30',
  ])
})

test('an hourly schedule counts elapsed time through both changes', () => {
  const hoursOf = (day: string) =>
    slotsOf('15 * * * *', NEW_YORK, `${day}T04:00Z`, `${day}T09:00Z`).map((slot) => slot.slice(11))
  const everyHour = ['04:15', '05:15', '06:15', '07:15', '08:15']
  expect(hoursOf('2026-11-01')).toEqual(everyHour)
  expect(hoursOf('2027-03-14')).toEqual(everyHour)
})

test('a change of half an hour, and one at midnight, move a slot no further than their end', () => {
  expect(slotsOf('10 2 * * *', 'Australia/Lord_Howe', '2026-10-03T00:00Z', '2026-10-04T00:00Z')).toEqual([
    '2026-10-03T15:30',
  ])
  expect(slotsOf('0 0 * * *', 'Africa/Cairo', '2027-04-29T00:00Z', '2027-04-30T12:00Z')).toEqual([
    '2027-04-29T22:00',
  ])
})

test('a change that crosses midnight moves a slot to the next day, whatever day it was due on', () => {
  for (const schedule of ['30 23 * * *', '15,30 23 * * SAT', '30 23 28 3 *'])
    expect(slotsOf(schedule, 'America/Nuuk', '2026-03-28T12:00Z', '2026-03-30T00:00Z'), schedule).toEqual([
      '2026-03-29T01:00',
    ])
  expect(slotsOf('30 23 * * *', 'America/Nuuk', '2026-03-29T01:00Z', '2026-03-30T01:00Z')).toEqual([
    '2026-03-30T00:30',
  ])
  expect(slotsOf('0 12 30 12 *', 'Pacific/Apia', '2011-12-29T00:00Z', '2012-01-01T00:00Z')).toEqual([
    '2011-12-30T10:00',
  ])
})

test('seconds, the last day of a month and a weekday of a month are understood', () => {
  const seconds = listSlots({schedule: '*/20 0 7 * * *', timeZone: 'UTC'}, 0, 86_400_000)
  expect(seconds).toEqual([25_200_000, 25_220_000, 25_240_000])
  expect(slotsOf('0 7 L * *', 'UTC', '2028-01-01T00:00Z', '2028-04-01T00:00Z')).toEqual([
    '2028-01-31T07:00',
    '2028-02-29T07:00',
    '2028-03-31T07:00',
  ])
  expect(slotsOf('0 7 * * 1#2', 'UTC', '2026-06-01T00:00Z', '2026-08-01T00:00Z')).toEqual([
    '2026-06-08T07:00',
    '2026-07-13T07:00',
  ])
})

test('the next slots of a rare schedule are found years ahead', () => {
  const next = listNextSlots({schedule: '0 0 29 2 *', timeZone: 'UTC'}, Date.parse('2026-06-01T00:00Z'), 2)
  expect(next).toEqual([2028, 2032].map((year) => Date.parse(`${year}-02-29T00:00Z`)))
})

test.each(['America/New_York', 'Africa/Casablanca', 'Australia/Lord_Howe'])(
  'the slots of a year in %s are the same however often somebody looks, one a local day',
  (timeZone) => {
    for (const schedule of ['30 2 * * *', '0 */6 * * *']) {
      const [from, hour] = [Date.parse('2026-06-01T00:00Z'), 3_600_000]
      const listTo = (after: number, hours: number) =>
        listSlots({schedule, timeZone}, after, after + hours * hour)
      const whole = listTo(from, 365 * 25)
      const looks = Array.from({length: 365}, (_, look) => listTo(from + look * 25 * hour, 25))
      expect(looks.flat()).toEqual(whole)
      const days = new Set(whole.map((slot) => formatLocal(slot, timeZone).slice(0, 10)))
      expect(days.size).toBeGreaterThanOrEqual(364)
      if (schedule === '30 2 * * *') expect(whole).toHaveLength(days.size)
    }
  },
)

test.each([
  ['61 2 * * *', 'minute'],
  ['0 2 *', 'five, six'],
  ['0 0 31 2 *', 'no day is ever due'],
  ['0 0 32 * *', 'day: 32'],
  ['0 0 * 13 *', 'month: 13'],
  ['2026-12-01T23:30:00', 'five or six fields'],
])('%s is refused, naming what is wrong', (expression, field) => {
  expect(findCronProblem(expression)).toContain(field)
  expect(findCronProblem(expression)).not.toMatch(/\.$/)
})

// The holidays are those of https://www.frbservices.org/about/holiday-schedules.
test('business days skip weekends, and the holidays of the Federal Reserve if asked to', () => {
  const days = Array.from({length: 365}, (_, index) => addDays('2027-01-01', index))
  const weekdays = days.filter((day) => ![0, 6].includes(new Date(day).getUTCDay()))
  const months = new Set(days.map((day) => day.slice(0, 7)))
  const open = [...months].flatMap((month) =>
    Array.from({length: 23}, (_, index) => findBusinessDay(month, index + 1, 'us-federal')),
  )
  expect(weekdays.filter((day) => !open.includes(day))).toEqual(
    ['01-01', '01-18', '02-15', '05-31', '07-05', '09-06', '10-11', '11-11', '11-25'].map(
      (day) => `2027-${day}`,
    ),
  )
  expect(findBusinessDay('2026-06', 3, 'us-federal')).toBe('2026-06-03')
  expect(findBusinessDay('2026-09', 5, 'us-federal')).toBe('2026-09-08')
  expect(findBusinessDay('2027-01', 3, 'us-federal')).toBe('2027-01-06')
  expect(findBusinessDay('2027-01', 3, undefined)).toBe('2027-01-05')
})
