import {BarChart, LineChart} from 'echarts/charts'
import {AriaComponent, GridComponent, LegendComponent, TooltipComponent} from 'echarts/components'
import {init, use} from 'echarts/core'
import {SVGRenderer} from 'echarts/renderers'
import {type Html, html, markup} from './html.ts'

use([LineChart, BarChart, GridComponent, LegendComponent, TooltipComponent, AriaComponent, SVGRenderer])

/** A series of a chart: a value for each place on its axis. */
export interface Series {
  name: string
  values: readonly (number | null)[]
}

/** What a chart shows. */
export interface Chart {
  /** What it says, for those who cannot see it. */
  title: string
  /** An area is stacked on the one before; a waterfall goes from its first value over movements to its last. */
  shape: 'area' | 'line' | 'bar' | 'waterfall'
  unit: keyof typeof UNITS
  places: readonly string[]
  series: readonly Series[]
}

const FONT = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
const WIDTH = 1100
const HEIGHT = 320
const COLOURS = Array.from({length: 7}, (_, index) => `var(--series-${index + 1})`)

/** How values are written beside the axis. */
const UNITS = {
  usd: new Intl.NumberFormat('en-US', {
    style: 'currency',
    currency: 'USD',
    notation: 'compact',
    maximumSignificantDigits: 4,
  }),
  ratio: new Intl.NumberFormat('en-US', {style: 'percent', maximumFractionDigits: 1}),
  number: new Intl.NumberFormat('en-US', {notation: 'compact'}),
}

/**
 * A chart as SVG; where scripts run, `workbench.js` draws it again from its options, with exact values for the pointer.
 */
export function renderChart(chart: Chart): Html {
  const {title, shape, unit, places, series} = chart
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
  const option = {
    animation: false,
    color: COLOURS,
    textStyle: {fontFamily: FONT, color: 'var(--muted)'},
    aria: {enabled: true, label: {description: title}},
    grid: {left: 70, right: 34, top: 36, bottom: 26},
    legend: {
      show: shape !== 'waterfall',
      type: 'plain',
      top: 0,
      left: 0,
      textStyle: {color: 'var(--ink)'},
      icon: 'roundRect',
      itemGap: 18,
      itemWidth: 10,
      itemHeight: 10,
    },
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
    series: shape === 'waterfall' ? series.flatMap(fallOf) : series.map(seriesOf),
  }
  const drawn = init(null, null, {renderer: 'svg', ssr: true, width: WIDTH, height: HEIGHT})
  try {
    const axisLabel = {...option.yAxis.axisLabel, formatter: (value: number) => UNITS[unit].format(value)}
    drawn.setOption({...option, yAxis: {...option.yAxis, axisLabel}})
    return html`<figure class="chart" role="img" aria-label="${title}" data-unit="${unit}" data-option="${JSON.stringify(option)}">${markup(drawn.renderToSVGString())}</figure>`
  } finally {
    drawn.dispose()
  }
}

/** Where each movement begins and ends. */
function levelsOf(values: Series['values']): [from: number, to: number][] {
  let level = 0
  return values.map((value, index) => {
    const from = index === 0 || index === values.length - 1 ? 0 : level
    level = from + (value ?? 0)
    return [from, level]
  })
}

/** Movements are small beside what moves: the axis begins not far below them. */
function findFloor(values: Series['values']): number {
  const ends = levelsOf(values).map(([, to]) => to)
  const least = Math.min(...ends)
  const floor = least - (Math.max(...ends) - least) / 2
  const step = 10 ** Math.max(0, Math.floor(Math.log10(Math.abs(floor) || 1)) - 2)
  return Math.max(0, Math.floor(floor / step) * step)
}

/** Bars that stand on what nobody sees: the first and the last on the ground, each movement on where it begins or ends. */
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
