import {dollarsAtAGlance} from './figures.ts'
import {type Html, html} from './html.ts'

/** One layer of a stacked chart: a value for each day. */
export interface Series {
  name: string
  values: readonly number[]
}

const WIDTH = 1000
const HEIGHT = 300
const LEFT = 70
const BOTTOM = 24
const TOP = 10
const COLOURS = 7

/** A legend of series, in the colours of the chart. */
export function renderLegend(series: readonly Series[]): Html {
  return html`<div class="legend">${series.map(
    ({name}, index) => html`<span style="--key: var(--series-${(index % COLOURS) + 1})">${name}</span>`,
  )}</div>`
}

/** Amounts by day, stacked; the first series lies at the bottom. */
export function renderAreaChart(days: readonly string[], series: readonly Series[]): Html {
  const totals = days.map((_, day) => series.reduce((sum, {values}) => sum + (values[day] ?? 0), 0))
  const step = niceStep(Math.max(...totals, 1))
  const top = Math.ceil(Math.max(...totals, 1) / step) * step
  const x = (day: number) => LEFT + (day / Math.max(1, days.length - 1)) * (WIDTH - LEFT)
  const y = (value: number) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM)
  const ticks = Array.from({length: Math.round(top / step) + 1}, (_, index) => index * step)
  let base = days.map(() => 0)
  const areas = series.map(({name, values}, index) => {
    const upper = base.map((value, day) => value + (values[day] ?? 0))
    const points = [
      ...upper.map((value, day) => point(x(day), y(value))),
      ...base.map((value, day) => point(x(day), y(value))).toReversed(),
    ]
    base = upper
    return html`<polygon points="${points.join(' ')}" style="fill: var(--series-${(index % COLOURS) + 1})"><title>${name}</title></polygon>\n`
  })
  return html`<svg class="chart" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="Amount by day and status">
${ticks.map((value) => html`<line class="grid" x1="${LEFT}" x2="${WIDTH}" y1="${y(value).toFixed(1)}" y2="${y(value).toFixed(1)}"/><text x="${LEFT - 8}" y="${(y(value) + 4).toFixed(1)}" text-anchor="end">${value === 0 ? '0' : dollarsAtAGlance(String(value))}</text>\n`)}${areas}${pickDays(
  days.length,
).map(
  (day, index, all) =>
    html`<text x="${x(day).toFixed(1)}" y="${HEIGHT - 6}" text-anchor="${index === 0 ? 'start' : index === all.length - 1 ? 'end' : 'middle'}">${days[day]}</text>\n`,
)}</svg>`
}

const point = (x: number, y: number) => `${x.toFixed(1)},${y.toFixed(1)}`

/** A round step that divides the axis into four to eight parts. */
function niceStep(most: number): number {
  const power = 10 ** Math.floor(Math.log10(most / 4))
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => most / step <= 6) ?? power * 10
}

/** Up to seven days to name, first and last among them. */
function pickDays(days: number): number[] {
  const labels = Math.min(7, days)
  return Array.from({length: labels}, (_, index) =>
    labels === 1 ? 0 : Math.round((index / (labels - 1)) * (days - 1)),
  )
}
