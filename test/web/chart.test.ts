import {expect, test} from 'vitest'
import {type Chart, renderChart} from '../../src/web/chart.ts'

const labelsOf = (chart: Pick<Chart, 'shape' | 'unit'>, values: number[]) => {
  const places = values.map((_, index) => `place ${index}`)
  const {html} = renderChart({...chart, title: 'A chart', places, series: [{name: 'one', values}]})
  return [...html.matchAll(/<text[^>]*>([^<]+)<\/text>/g)]
    .map(([, label = '']) => label)
    .filter((label) => /[$%\d]/.test(label) && !label.startsWith('place'))
}

test.each([
  ['waterfall', 'usd', [10_000_000_000_000, 1_200_000, -300_000, 10_000_000_900_000]],
  ['line', 'usd', [10_000_000_000_000, 10_000_001_000_000, 10_000_002_000_000]],
  ['line', 'ratio', [0.69531, 0.69534, 0.69539]],
  ['line', 'number', [1_000_001, 1_000_004, 1_000_009]],
  ['area', 'usd', [455_000_000, 456_000_000]],
  ['bar', 'usd', [0, 0]],
] as const)('no two labels of an axis are the same: %s of %s', (shape, unit, values) => {
  const labels = labelsOf({shape, unit}, [...values])
  expect(labels.length).toBeGreaterThan(0)
  expect(new Set(labels).size).toBe(labels.length)
})

test('the series names stand beside the drawing, however many and long, and hide none of it', () => {
  const series = Array.from({length: 14}, (_, index) => ({
    name: index === 0 ? '' : `series ${index} `.repeat(9),
    values: [1, 2],
  }))
  const {html} = renderChart({title: 'A chart', shape: 'area', unit: 'usd', places: ['a', 'b'], series})
  const [, key = '', drawing = ''] = /<figcaption[^>]*>(.*)<\/figcaption>(.*)/s.exec(html) ?? []
  expect(key.match(/<span>/g)).toHaveLength(14)
  expect(key).toContain('(blank)')
  expect(drawing).toContain('<text')
  expect(drawing).not.toContain('series 1')
})
