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
  /** An area is stacked on the one before. */
  shape: 'area' | 'line' | 'bar'
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
  usd: new Intl.NumberFormat('en-US', {style: 'currency', currency: 'USD', notation: 'compact'}),
  ratio: new Intl.NumberFormat('en-US', {style: 'percent', maximumFractionDigits: 1}),
  number: new Intl.NumberFormat('en-US', {notation: 'compact'}),
}

/**
 * A chart as SVG; where scripts run, `workbench.js` draws it again from its options, with exact values for the pointer.
 */
export function renderChart(chart: Chart): Html {
  const {title, shape, unit, places, series} = chart
  const isStacked = shape === 'area'
  const option = {
    animation: false,
    color: COLOURS,
    textStyle: {fontFamily: FONT, color: 'var(--muted)'},
    aria: {enabled: true, label: {description: title}},
    grid: {left: 70, right: 34, top: 36, bottom: 26},
    legend: {
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
      boundaryGap: shape === 'bar',
      axisLine: {lineStyle: {color: 'var(--line)'}},
      axisTick: {show: false},
      axisLabel: {color: 'var(--muted)'},
    },
    yAxis: {
      type: 'value',
      scale: shape === 'line',
      splitLine: {lineStyle: {color: 'var(--line)'}},
      axisLabel: {color: 'var(--muted)'},
    },
    series: series.map(({name, values}) => ({
      name,
      type: shape === 'bar' ? 'bar' : 'line',
      data: values,
      symbol: places.length > 40 ? 'none' : 'circle',
      symbolSize: 4,
      emphasis: {disabled: true},
      ...(isStacked && {stack: 'all', areaStyle: {opacity: 1}, lineStyle: {width: 0}, symbol: 'none'}),
    })),
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
