import {BarChart, LineChart} from 'echarts/charts'
import {AriaComponent, GridComponent, MarkLineComponent, TooltipComponent} from 'echarts/components'
import {init, use} from 'echarts/core'
import {SVGRenderer} from 'echarts/renderers'
import {Html, html, showControls} from './html.ts'

use([LineChart, BarChart, GridComponent, MarkLineComponent, TooltipComponent, AriaComponent, SVGRenderer])

/** What a chart shows. */
export interface Chart {
  /** A description for people who cannot see it. */
  title: string
  /** An area is stacked on the one before; a waterfall goes from its first value over movements to its last. */
  shape: 'area' | 'line' | 'bar' | 'waterfall'
  unit: keyof typeof UNITS
  places: readonly string[]
  /** Places that are marked, by their numbers from 0, each with a short name. */
  marks?: readonly {place: number; name: string}[]
  /** What a range of its days is called in the address: of `day`, `day_from` and `day_to`. */
  range?: string | undefined
  /** Each with a value for each place on the axis. */
  series: readonly {name: string; values: readonly (number | null)[]}[]
}
type Series = Chart['series'][number]

const FONT = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
const COLOURS = Array.from({length: 7}, (_, index) => `var(--series-${index + 1})`)

/** How values are written beside the axis. */
const UNITS = {
  usd: {style: 'currency', currency: 'USD', notation: 'compact'},
  ratio: {style: 'percent'},
  number: {notation: 'compact'},
} as const

/**
 * A chart as SVG; where scripts run, `workbench.js` draws it again from its options, with exact values for the pointer.
 */
export function renderChart(chart: Chart): Html {
  const {title, shape, unit, marks = [], range} = chart
  const places = chart.places.map(nameOf)
  const series = chart.series.map(({name, values}) => ({name: nameOf(name), values}))
  const isStacked = shape === 'area'
  const isBar = shape === 'bar' || shape === 'waterfall'
  const seriesOf = ({name, values}: Series) => ({
    name,
    type: isBar ? 'bar' : 'line',
    data: values,
    symbol: places.length > 40 ? 'none' : 'circle',
    symbolSize: 4,
    emphasis: {disabled: true},
    ...(isStacked && {stack: 'all', areaStyle: {opacity: 1}, lineStyle: {width: 0}, symbol: 'none'}),
  })
  const markLine = {
    silent: true,
    symbol: 'none',
    lineStyle: {color: 'var(--muted)', type: 'dashed'},
    label: {color: 'var(--ink)', formatter: '{b}', distance: 2},
    data: marks.map(({place, name}) => ({name, xAxis: place})),
  }
  const option = {
    animation: false,
    color: COLOURS,
    textStyle: {fontFamily: FONT, color: 'var(--muted)'},
    aria: {enabled: true, label: {description: title}},
    grid: {left: 70, right: 34, top: marks.length > 0 ? 22 : 10, bottom: 26},
    tooltip: {trigger: 'axis', confine: true},
    xAxis: {
      type: 'category',
      data: places,
      boundaryGap: isBar,
      axisLine: {lineStyle: {color: 'var(--line)'}},
      axisTick: {show: false},
      axisLabel: {color: 'var(--muted)'},
    },
    yAxis: {
      type: 'value',
      scale: shape === 'line',
      ...(shape === 'waterfall' && {min: findFloor(series[0]?.values ?? [])}),
      splitLine: {lineStyle: {color: 'var(--line)'}},
      axisLabel: {color: 'var(--muted)', showMinLabel: shape !== 'waterfall'},
    },
    series:
      shape === 'waterfall'
        ? series.flatMap(fallOf)
        : series.map((one, index) => ({...seriesOf(one), ...(index === 0 && {markLine})})),
  }
  const drawn = init(null, null, {renderer: 'svg', ssr: true, width: 1100, height: 320})
  try {
    // All digits that a label has: it is a round number, and so differs from the next.
    const format = new Intl.NumberFormat('en-US', {...UNITS[unit], maximumSignificantDigits: 15})
    const axisLabel = {...option.yAxis.axisLabel, formatter: (value: number) => format.format(value)}
    drawn.setOption({...option, yAxis: {...option.yAxis, axisLabel}})
    const legend = html`<figcaption class="key">${series.map(({name}, index) => html`<span><svg viewBox="0 0 10 10" aria-hidden="true"><rect width="10" height="10" rx="2" fill="${COLOURS[index % COLOURS.length] ?? ''}"/></svg>${name}</span> `)}</figcaption>`
    return html`<figure class="chart" aria-label="${title}" data-unit="${unit}"${range !== undefined && html` data-range="${range}"`} data-option="${JSON.stringify(option)}">${shape !== 'waterfall' && legend}<div role="img" aria-label="${title}">${new Html(drawn.renderToSVGString())}</div></figure>`
  } finally {
    drawn.dispose()
  }
}

/** A name beside a mark, shortened so that it hides none. */
const nameOf = (name: string) =>
  showControls(name === '' ? '(blank)' : name.length > 40 ? `${name.slice(0, 39)}…` : name)

/** The begin and end of each movement. */
function levelsOf(values: Series['values']): [from: number, to: number][] {
  let level = 0
  return values.map((value, index) => {
    const from = index === 0 || index === values.length - 1 ? 0 : level
    level = from + (value ?? 0)
    return [from, level]
  })
}

/** The axis begins shortly below the movements, which are small compared with the whole. */
function findFloor(values: Series['values']): number {
  const ends = levelsOf(values).map(([, to]) => to)
  const least = Math.min(...ends)
  const floor = least - (Math.max(...ends) - least) / 2
  const step = 10 ** Math.max(0, Math.floor(Math.log10(Math.abs(floor) || 1)) - 2)
  return Math.max(0, Math.floor(floor / step) * step)
}

/** Bars on invisible ones: the first and last stand on the axis, each movement on its lower end. */
function fallOf({name, values}: Series) {
  const levels = levelsOf(values)
  const colourOf = ([from, to]: [number, number], index: number) =>
    index === 0 || index === levels.length - 1 ? COLOURS[0] : to < from ? 'var(--bad)' : 'var(--good)'
  const bar = {type: 'bar', stack: 'all', emphasis: {disabled: true}}
  return [
    {
      ...bar,
      name: '',
      silent: true,
      itemStyle: {color: 'transparent'},
      tooltip: {show: false},
      data: levels.map((ends) => Math.min(...ends)),
    },
    {
      ...bar,
      name,
      data: levels.map((ends, index) => ({
        value: Math.abs(ends[1] - ends[0]),
        itemStyle: {color: colourOf(ends, index)},
      })),
    },
  ]
}
