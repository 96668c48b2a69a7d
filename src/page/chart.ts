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
  /** Amounts stacked on each other, or ratios side by side. */
  kind: 'amounts' | 'ratios'
  places: readonly string[]
  series: readonly Series[]
}

const FONT = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
const WIDTH = 1100
const HEIGHT = 320
const COLOURS = Array.from({length: 7}, (_, index) => `var(--series-${index + 1})`)

const usd = new Intl.NumberFormat('en-US', {style: 'currency', currency: 'USD', notation: 'compact'})
const percent = new Intl.NumberFormat('en-US', {style: 'percent', maximumFractionDigits: 1})

/**
 * A chart as SVG; where scripts run, `workbench.js` draws it again from its options, with exact values for the pointer.
 */
export function renderChart(chart: Chart): Html {
  const {title, kind, places, series} = chart
  const isStacked = kind === 'amounts'
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
      boundaryGap: false,
      axisLine: {lineStyle: {color: 'var(--line)'}},
      axisTick: {show: false},
      axisLabel: {color: 'var(--muted)'},
    },
    yAxis: {
      type: 'value',
      scale: !isStacked,
      splitLine: {lineStyle: {color: 'var(--line)'}},
      axisLabel: {color: 'var(--muted)'},
    },
    series: series.map(({name, values}) => ({
      name,
      type: 'line',
      data: values,
      symbol: places.length > 40 ? 'none' : 'circle',
      symbolSize: 4,
      emphasis: {disabled: true},
      ...(isStacked && {stack: 'all', areaStyle: {opacity: 1}, lineStyle: {width: 0}, symbol: 'none'}),
    })),
  }
  const format = isStacked ? usd : percent
  const drawn = init(null, null, {renderer: 'svg', ssr: true, width: WIDTH, height: HEIGHT})
  try {
    const axisLabel = {...option.yAxis.axisLabel, formatter: (value: number) => format.format(value)}
    drawn.setOption({...option, yAxis: {...option.yAxis, axisLabel}})
    return html`<figure class="chart" role="img" aria-label="${title}" data-kind="${kind}" data-option="${JSON.stringify(option)}">${markup(drawn.renderToSVGString())}</figure>`
  } finally {
    drawn.dispose()
  }
}
