import {expect, test} from 'vitest'
import {type ChartShape, renderChart} from '../../src/web/chart.ts'
import {inTimeZone} from '../../src/web/figures.ts'
import {endOfMoment} from '../../src/web/filter.ts'
import {html, prose} from '../../src/web/html.ts'
import {textOf} from './side.ts'

/** Draws a chart of rows: the first column names places, the last is a number with a meaning. */
const draw = (shape: ChartShape, names: readonly string[], rows: readonly (readonly unknown[])[]) =>
  html`${renderChart(shape, {columns: names.map((name) => ({name, type: ''})), rows}, {linkTo: () => undefined, options: {}})}`
    .html

/** Values without a place in a chart, by remainder; in SQL a division by zero is infinity. */
const GAPS = new Map([null, Number.NaN, Infinity, '-Infinity'].map((value, index) => [index + 3, value]))

test.each([1, 2, 400])(
  'a chart of %s days is drawn, whatever its names are and what is missing',
  (length) => {
    const odd = '<script>alert(1)</script>'
    const rows = Array.from({length}, (_, index) =>
      [odd, 'two'].map((name) => [
        `day ${index}`,
        name,
        GAPS.has(index % 7) ? GAPS.get(index % 7) : index * 1e6,
      ]),
    )
    for (const shape of ['area', 'line', 'bar'] as const) {
      const chart = draw(shape, ['place', 'series', `${odd}_usd`], rows.flat())
      expect(chart).not.toMatch(/<script|NaN|Infinity/)
      expect(chart, 'above the frame').not.toMatch(/[ML][\d.]+ -/)
      expect(chart).toContain('&lt;script&gt;alert(1)')
      expect(chart).toContain('day 0')
    }
  },
)

test.each([
  [['a_usd'], [1], false],
  [['a_usd', 'b_usd'], [1, 2], true],
  [['state', 'a_usd'], ['TX', 1], true],
])('a chart of %s has a legend, unless it has one number alone', (names, values, isNamed) => {
  const chart = draw(
    'line',
    ['place', ...names],
    ['day 1', 'day 2'].map((place) => [place, ...values]),
  )
  expect(chart.includes('<figcaption')).toBe(isNamed)
})

test('a percentage is drawn as what it is beside numbers of another kind, and called as in a table', () => {
  const rows = [
    ['day 1', 61.4, 3],
    ['day 2', 50, 4],
  ]
  const chart = draw('line', ['place', 'a_pct', 'b_ms'], rows)
  expect(chart).toContain('[61.4,50]')
  expect(textOf(/<figcaption.*<\/figcaption>/s.exec(chart)?.[0] ?? '').trim()).toBe('A B')
  expect(draw('line', ['place', 'a_pct', 'b_ratio'], rows)).toContain('[0.614,0.5]')
})

test('no two labels of an axis are the same', () => {
  const charts: [ChartShape, string, number[]][] = [
    ['waterfall', 'usd', [10_000_000_000_000, 1_200_000, -300_000, 10_000_000_900_000]],
    ['line', 'usd', [10_000_000_000_000, 10_000_001_000_000, 10_000_002_000_000]],
    ['line', 'ratio', [0.69531, 0.69534, 0.69539]],
    ['line', 'ms', [1_000_001, 1_000_004, 1_000_009]],
    ['area', 'usd', [455_000_000, 456_000_000]],
    ['bar', 'usd', [0, 0]],
  ]
  for (const [shape, unit, values] of charts) {
    const rows = values.map((value, index) => [`place ${index}`, value])
    const labels = [...draw(shape, ['place', `one_${unit}`], rows).matchAll(/<text[^>]*>([^<]+)<\/text>/g)]
      .map(([, label = '']) => label)
      .filter((label) => /[$%\d]/.test(label) && !label.startsWith('place'))
    expect(labels.length, `${shape} of ${unit}`).toBeGreaterThan(0)
    expect(new Set(labels).size, `${shape} of ${unit}`).toBe(labels.length)
  }
})

test('a movement of a waterfall begins where the one before it ends, also below zero', () => {
  const chart = draw(
    'waterfall',
    ['step', 'amount_usd'],
    ['opening', 'out', 'in', 'closing'].map((step, index) => [step, [-5, -3, 12, 4][index]]),
  )
  const bars = [...chart.matchAll(/<path d="M\S+ (\S+)l\S+ 0l0 (\S+)l[^>]*fill="var/g)].map(
    ([, from, height]) => ({from: Number(from), to: Number(from) + Number(height)}),
  )
  const zero = bars[3]?.from ?? Number.NaN
  const step = (zero - (bars[3]?.to ?? 0)) / 4
  expect(bars.map(({from, to}) => [from, to].map((at) => Math.round((zero - at) / step)))).toEqual([
    [0, -5],
    [-5, -8],
    [-8, 4],
    [0, 4],
  ])
})

test('an instant in a sentence is shown in the zone of the page, except in code', () => {
  const sentence = prose(
    'Ended 2026-03-05T04:30:00.000Z, not 2026-99-05T04:30Z; `--known-at 2026-03-05T04:30:00Z`.',
  )
  expect(textOf(inTimeZone(sentence.html, 'America/New_York'))).toBe(
    'Ended 2026-03-04 23:30:00 EST , not 2026-99-05T04:30Z ; --known-at 2026-03-05T04:30:00Z .',
  )
})

test.each([
  ['America/New_York', '2026-03-08', '2026-03-09T09:59:59.999999'],
  ['America/New_York', '2026-11-01T01:30:00', '2026-11-01T06:30:00.999999'],
  ['America/New_York', '2026-03-08T02:30:00', '2026-03-08T06:30:00.999999'],
  ['America/Santiago', '2026-04-04', '2026-04-05T09:59:59.999999'],
  ['America/New_York', '2026-03-02T23', '2026-03-03T04:59:59.999999'],
  ['Asia/Kolkata', '2026-02-03T05:30', '2026-02-03T00:00:59.999999'],
])('in %s, %s ends last at %s', (timeZone, moment, instant) => {
  expect(endOfMoment(moment, {timeZone, dayCutoff: '06:00'})).toBe(instant)
})
