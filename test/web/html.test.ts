import {expect, test} from 'vitest'
import {renderChart} from '../../src/web/chart.ts'
import {
  count,
  countOf,
  dollars,
  dollarsAtAGlance,
  instant,
  inTimeZone,
  percent,
  ratio,
} from '../../src/web/figures.ts'
import {html, prose} from '../../src/web/html.ts'

test('values put into a template are escaped, markup is not', () => {
  const inner = html`<b>${'a < b & "c"'}</b>`
  expect(html`<p title="${'"\'>'}">${inner}${[1, ' ', html`<i></i>`]}${null}${false}</p>`.html).toBe(
    '<p title="&quot;&#39;&gt;"><b>a &lt; b &amp; &quot;c&quot;</b>1 <i></i></p>',
  )
})

test('words between backticks become code and are escaped, too', () => {
  expect(prose('is `<null>` & more').html).toBe('is <code>&lt;null&gt;</code> &amp; more')
})

test.each([
  [dollars('1234567.89'), '$1,234,567.89'],
  [dollars('-0.10'), '−$0.10'],
  [dollars(null), '–'],
  [dollarsAtAGlance('3286781778.28'), '$3.29B'],
  [dollarsAtAGlance('466238315.02'), '$466M'],
  [dollarsAtAGlance('516000.00'), '$516K'],
  [dollarsAtAGlance('999.10'), '$999.10'],
  [count('1234'), '1,234'],
  [percent(61.44), '61.4 %'],
  [ratio(0.614), '61.4 %'],
  [ratio(null), '–'],
  [countOf(1, 'deal'), '1 deal'],
  [countOf(1234, 'entry', 'entries'), '1,234 entries'],
])('people read %s', (shown, expected) => {
  expect(shown).toBe(expected)
})

test.each([1, 2, 400])(
  'a chart of %s days is drawn, whatever its names are and whatever is missing',
  (length) => {
    const places = Array.from({length}, (_, index) => `day ${index}`)
    const values = places.map((_, index) => (index % 7 === 3 ? null : index * 1e6))
    const odd = '<script>alert(1)</script>'
    const series = [
      {name: odd, values},
      {name: 'two', values},
    ]
    for (const shape of ['area', 'line', 'bar'] as const) {
      const chart = renderChart({title: odd, shape, unit: 'usd', places, series}).html
      expect(chart).not.toContain('<script')
      expect(chart).toContain('&lt;script&gt;alert(1)')
      expect(chart).toContain('viewBox="0 0 1100 320"')
      expect(chart).not.toMatch(/NaN|Infinity/)
      expect(chart).toContain('day 0')
    }
  },
)

test("an instant is shown in its page's time zone, with the zone's name", () => {
  const text = html`since ${instant('2026-11-21T06:02:15.257000Z')} and ${instant('2026-07-01 00:30:00')}`
    .html
  const read = (markup: string) => markup.replaceAll(/<[^>]*>/g, '')
  expect(read(text)).toBe('since 2026-11-21 06:02:15 UTC and 2026-07-01 00:30:00 UTC')
  expect(read(inTimeZone(text, 'America/New_York'))).toBe(
    'since 2026-11-21 01:02:15 EST and 2026-06-30 20:30:00 EDT',
  )
})
