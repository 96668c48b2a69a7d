import fc from 'fast-check'
import {expect, test} from 'vitest'
import {parseRetryAfter} from '../../src/core/retry-after.ts'
import {parseWait} from '../../src/source/rate-limit.ts'

const NOW = Date.parse('2026-01-31T12:00:00Z')
const DAY_MS = 86_400_000

test.each([
  ['3', 3000],
  ['0.5', 500],
  ['0', 0],
  ['-5', 0],
  ['86400', DAY_MS],
  ['1000000000', 60_000],
  ['Sat, 31 Jan 2026 12:00:07 GMT', 7000],
  ['Sat, 31 Jan 2026 11:00:00 GMT', 0],
  ['Fri, 31 Jan 2126 12:00:00 GMT', 60_000],
  ['', null],
  ['soon', null],
])('reads Retry-After %j as %j ms', (text, expected) => {
  expect(parseRetryAfter(text, NOW)).toBe(expected)
})

test.each([
  [{ratelimit: '"default";r=0;t=3'}, 3000],
  [{ratelimit: 'default;t=3;r=0'}, 3000],
  [{ratelimit: '"default";r=1;t=3'}, 0],
  [{ratelimit: '"burst";r=0;t=2, "day";r=0;t=9'}, 9000],
  [{ratelimit: '"burst";r=0;t=2, "day";r=70;t=900'}, 2000],
  [{ratelimit: ['"burst";r=0;t=2', '"day";r=0;t=9']}, 9000],
  [{ratelimit: '"default";r=0'}, 0],
  [{ratelimit: '"default";r=0', 'ratelimit-policy': '"default";q=100;w=60'}, 60_000],
  [{ratelimit: '"default";r=0;t=0', 'ratelimit-policy': '"default";q=100;w=60'}, 0],
  [{'ratelimit-policy': '"default";q=100;w=60'}, 0],
  [{ratelimit: 'limit=100, remaining=0, reset=3'}, 3000],
  [{'ratelimit-limit': '10', 'ratelimit-remaining': '0', 'ratelimit-reset': '4'}, 4000],
  [{'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '4'}, 4000],
  [{'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(NOW / 1000 + 5)}, 5000],
  [{'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(NOW + 6000)}, 6000],
  [{'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(NOW / 1000 - 5)}, 0],
  [{'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '2026-01-31T12:00:08Z'}, 8000],
  [{'x-ratelimit-remaining': '0'}, 0],
  [{'x-ratelimit-remaining': '0', 'x-ratelimit-reset': 'later'}, 0],
  [{'x-ratelimit-remaining': '-1', 'x-ratelimit-reset': '1'}, 1000],
  [{ratelimit: '"a";r=0;t=1', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '2'}, 2000],
  [{ratelimit: '"a";r=0;t=999999999999'}, 60_000],
  [{ratelimit: ';;==,,"'}, 0],
  [{}, 0],
  [{'retry-after': '2', ratelimit: '"default";r=0;t=5'}, 5000],
  [{'retry-after': '8', ratelimit: '"default";r=0;t=5'}, 8000],
])('reads the quota of %j as %j ms to wait', (headers, expected) => {
  expect(parseWait(headers, NOW)).toBe(expected)
})

test('never throws and never asks for more than a day, whatever the headers say', () => {
  const headerText = fc.oneof(
    fc.string(),
    fc.integer().map(String),
    fc.double().map(String),
    fc.stringMatching(/^[a-z"=;, 0-9.-]{0,40}$/),
    fc.date({noInvalidDate: true}).map((date) => date.toUTCString()),
    fc.tuple(fc.integer(), fc.integer()).map(([r, t]) => `"default";r=${r};t=${t}`),
  )
  const names = fc.constantFrom(
    'retry-after',
    'ratelimit',
    'ratelimit-policy',
    'ratelimit-remaining',
    'ratelimit-reset',
    'x-ratelimit-remaining',
    'x-ratelimit-reset',
  )
  fc.assert(
    fc.property(fc.dictionary(names, fc.oneof(headerText, fc.array(headerText))), (headers) => {
      const waitMs = parseWait(headers, NOW)
      expect(Number.isInteger(waitMs)).toBe(true)
      expect(waitMs).toBeGreaterThanOrEqual(0)
      expect(waitMs).toBeLessThanOrEqual(DAY_MS)
    }),
  )
})

test('reads every whole number of seconds up to a day as itself, in both forms', () => {
  fc.assert(
    fc.property(fc.integer({min: 0, max: 86_400}), (seconds) => {
      expect(parseRetryAfter(String(seconds), NOW)).toBe(seconds * 1000)
      expect(parseRetryAfter(new Date(NOW + seconds * 1000).toUTCString(), NOW)).toBe(seconds * 1000)
    }),
  )
})
