import {expect, test} from 'vitest'
import {endOfMoment} from '../../src/web/filter.ts'

test.each([
  ['America/New_York', '2026-03-08', '2026-03-09T09:59:59.999999'],
  ['America/New_York', '2026-11-01T01:30:00', '2026-11-01T06:30:00.999999'],
  ['America/New_York', '2026-03-08T02:30:00', '2026-03-08T06:30:00.999999'],
  ['America/Santiago', '2026-04-04', '2026-04-05T09:59:59.999999'],
  ['Asia/Kolkata', '2026-02-03T05:30', '2026-02-03T00:00:59.999999'],
])('in %s, %s ends last at %s', (timeZone, moment, instant) => {
  expect(endOfMoment(moment, {timeZone, dayCutoff: '06:00'})).toBe(instant)
})
