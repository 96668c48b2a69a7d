import {expect, test} from 'vitest'
import {renderAreaChart} from '../../src/page/area-chart.ts'
import {count, dollars, dollarsAtAGlance, instant, percent, ratio} from '../../src/page/figures.ts'
import {html, prose} from '../../src/page/html.ts'

test('what is put into a template is escaped, markup is not', () => {
  const inner = html`<b>${'a < b & "c"'}</b>`
  expect(html`<p title="${'"\'>'}">${inner}${[1, ' ', html`<i></i>`]}${null}${false}</p>`.html).toBe(
    '<p title="&quot;&#39;&gt;"><b>a &lt; b &amp; &quot;c&quot;</b>1 <i></i></p>',
  )
})

test('words between backticks are code, and escaped as well', () => {
  expect(prose('is `<null>` & more').html).toBe('is <code>&lt;null&gt;</code> &amp; more')
})

test.each([
  [dollars('1234567.89'), '$1,234,567.89'],
  [dollars('-0.10'), '−$0.10'],
  [dollars(null), '–'],
  [dollarsAtAGlance('3286781778.28'), '$3.29 bn'],
  [dollarsAtAGlance('466238315.02'), '$466 m'],
  [dollarsAtAGlance('516000.00'), '$516 k'],
  [dollarsAtAGlance('999.10'), '$999.10'],
  [count('1234'), '1,234'],
  [percent(61.44), '61.4 %'],
  [ratio(0.614), '61.4 %'],
  [ratio(null), '–'],
  [instant('2026-11-21T06:02:15.257000Z'), '2026-11-21 06:02:15 UTC'],
])('people read %s', (shown, expected) => {
  expect(shown).toBe(expected)
})

test.each([1, 2, 400])(
  'a chart of %s days names at most seven of them and stays within its frame',
  (length) => {
    const days = Array.from({length}, (_, index) => `day ${index}`)
    const values = days.map((_, index) => index * 1e6)
    const chart = renderAreaChart(days, [
      {name: 'one', values},
      {name: 'two', values},
    ]).html
    const labels = chart.match(/>day \d+</g) ?? []
    expect(labels.length).toBe(Math.min(7, length))
    const [, ...points] = chart.match(/-?[\d.]+,-?[\d.]+/g) ?? []
    for (const [x = 0, y = 0] of points.map((point) => point.split(',').map(Number))) {
      expect(x >= 0 && x <= 1000 && y >= 0 && y <= 300, `${x},${y}`).toBe(true)
    }
  },
)
