import {BarChart, LineChart} from 'echarts/charts'
import {AriaComponent, GridComponent, MarkLineComponent, TooltipComponent} from 'echarts/components'
import {init, use} from 'echarts/core'
import {SVGRenderer} from 'echarts/renderers'
import {z} from 'zod'
import {DAY_MS, isCalendarDate} from '../core/clock.ts'
import {
  type Block,
  isNumeric,
  isSo,
  type LinkTo,
  listShown,
  meaningOf,
  type Row,
  renderMatrix,
  renderMeant,
  type Shown,
  textOf,
  titleOfColumn,
} from './cells.ts'
import {linked, words} from './figures.ts'
import {Html, html, showControls} from './html.ts'

use([LineChart, BarChart, GridComponent, MarkLineComponent, TooltipComponent, AriaComponent, SVGRenderer])

/** Areas are stacked. A waterfall goes from its first value through movements to its last. */
export type ChartShape = 'area' | 'line' | 'bar' | 'waterfall'

type Chart = Exclude<ReturnType<typeof readChart>, string>
type Values = readonly (number | null)[]

export type DayNote = z.output<typeof dayNote>
export const dayNote = z.object({subject: z.string(), text: z.string(), who: z.string()})

export interface Around {
  linkTo: LinkTo
  /** `range` of a chart names the parameters of its days: `day` stands for `day_from` and `day_to`. */
  options: Readonly<Record<string, string>>
  /** Notes about days, marked in line and area charts over days or months. */
  notes?: readonly DayNote[]
}

export const isOfTime = (shape: string) => shape === 'line' || shape === 'area'

/** As many as colours can tell apart. */
const MOST_SERIES = 8

const FONT = 'system-ui, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif'
const COLOURS = Array.from({length: MOST_SERIES}, (_, index) => `var(--series-${index + 1})`)

const UNITS = {
  usd: {style: 'currency', currency: 'USD', notation: 'compact'},
  ratio: {style: 'percent'},
  number: {notation: 'compact'},
} as const

/** `values` asks for the values below the chart; a single place has only values. A string says why the rows do not fit. */
export function renderChart(
  shape: ChartShape,
  block: Block,
  {linkTo, options: {title, values, range}, notes = []}: Around,
): Html | string {
  const chart = readChart(block, shape, linkTo)
  if (typeof chart === 'string') return chart
  const {places, areDays} = chart
  if (range !== undefined && !areDays) return 'A range needs a chart whose places are days or months.'
  const isOnlyListed = places.length === 1 && values !== undefined
  const noted = isOfTime(shape) && areDays && !isOnlyListed ? placeNotes(places, notes) : []
  const listed = noted.map(
    ({subject, text, who}) =>
      html`<li>${subject}: <span class="lines">${text}</span> <span class="muted">${who}</span></li>`,
  )
  return html`${!isOnlyListed && drawChart(shape, {...chart, title: title ?? chart.title}, range, noted)}${
    listed.length > 0 && html`<ol class="noted small">${listed}</ol>`
  }${values !== undefined && html`<details${isOnlyListed && html` open`}><summary>${values}</summary>${listValues(shape, block, linkTo)}</details>`}`
}

/** Over time, newest first; at most `most` places. */
export function listValues(shape: ChartShape | 'map', block: Block, linkTo: LinkTo, most = Infinity) {
  const chart = readChart(block, shape, linkTo)
  if (typeof chart === 'string') return chart
  const [first] = listShown(block)
  const groups = [...Map.groupBy(block.rows, (row) => (first ? textOf(first, row) : ''))]
  if (chart.areDays && isOfTime(shape)) groups.sort(([a], [b]) => (a < b ? -1 : 1))
  const rows = (isOfTime(shape) ? groups.reverse() : groups).slice(0, most).flatMap(([, own]) => own)
  const all = chart.places.length
  return html`${(chart.isMatrix ? renderMatrix : renderMeant)({...block, rows}, linkTo)}${all > most && html`<p class="muted small">The ${isOfTime(shape) ? 'last' : 'first'} ${most} of ${all}; the page has more.</p>`}`
}

/**
 * Leaves out totals. The first column names the places. Each number after it is a series; if places repeat, the values of the one
 * text column are the series.
 */
function readChart(block: Block, shape: ChartShape | 'map', linkTo: LinkTo) {
  const rows = block.rows.filter((row) => !isSo(block, 'is_total', row))
  const [first, ...others] = listShown(block)
  const numbers = others.filter(isNumeric)
  const [text, ...texts] = others.filter((column) => !isNumeric(column))
  if (!first || numbers.length === 0)
    return 'A chart needs a column that names the places, and numbers after it.'
  const valuesOf = (column: Shown) => [...new Set(rows.map((row) => textOf(column, row)))]
  const places = valuesOf(first)
  const areDays = places.every((place) => isCalendarDate(place.length === 7 ? `${place}-01` : place))
  if (areDays && isOfTime(shape)) places.sort()
  const names = text ? valuesOf(text) : []
  const isOne = numbers.length === 1 && texts.length === 0
  const named = places.length < rows.length || (isOne && names.length === 1) ? text : undefined
  if (places.length < rows.length && (!named || !isOne))
    return `'${first.name}' has the same value in several rows: a chart needs one row for each, or beside it one text column, whose values are the series, and one number.`
  if (named && names.length > MOST_SERIES)
    return `'${named.name}' has ${names.length} values: a chart can show ${MOST_SERIES} series. Add the smallest up under one name, or leave some out.`
  const series = named ? names : numbers.map(({name}) => name)
  if (shape === 'waterfall' && series.length > 1) return 'A waterfall needs one number for each place.'
  const isAll = (...meanings: string[]) => numbers.every((column) => meanings.includes(meaningOf(column)))
  const unit: keyof typeof UNITS = isAll('usd') ? 'usd' : isAll('ratio', 'percent') ? 'ratio' : 'number'
  const keyOf = (place: string, series: string) => JSON.stringify([place, series])
  const points = new Map(
    rows.flatMap((row) =>
      numbers.map((column) => [
        keyOf(textOf(first, row), named ? textOf(named, row) : column.name),
        {value: numberAt(column, row, unit), href: linkTo(column.beside(row, 'href') ?? '')},
      ]),
    ),
  )
  if (named && points.size < rows.length)
    return `'${first.name}' and '${named.name}' have the same values in several rows: a chart needs one row for each.`
  return {
    unit,
    /** The second column names the series. */
    isMatrix: named !== undefined && named === others[0],
    areDays,
    places: places.map(words),
    /** For screen readers. */
    title: named ? `${numbers[0]?.name} by ${named.name}` : series.join(', '),
    series: series.map((name) => {
      const own = places.map((place) => points.get(keyOf(place, name)))
      const [href, ...others] = new Set(own.flatMap((point) => (point ? [point.href] : [])))
      return {
        name: nameOf(named ? words(name) : titleOfColumn({name, type: ''})),
        // A stacked area treats a missing value as zero.
        data: own.map((point) => point?.value ?? (shape === 'area' ? 0 : null)),
        /** The link of each value, or one for all. */
        hrefs: others.length > 0 ? own.map((point) => point?.href) : href,
      }
    }),
  }
}

function numberAt(column: Shown, row: Row, unit: keyof typeof UNITS): number | null {
  const value = Number(column.of(row) ?? Number.NaN)
  // SQL divides by zero to infinity, which has no place in a chart.
  if (!Number.isFinite(value)) return null
  return unit === 'ratio' && meaningOf(column) === 'percent' ? value / 100 : value
}

const MOST_MARKS = 20

/** A note on a day without a place goes to the next one. */
function placeNotes(places: readonly string[], notes: readonly DayNote[]) {
  const months = places.map((place) => place.slice(0, 7))
  const isMonthly = new Set(months).size === places.length
  const placeOf = (day: string) => {
    if (isMonthly) return months.indexOf(day.slice(0, 7))
    return day < (places[0] ?? '') ? -1 : places.findIndex((place) => place >= day)
  }
  return notes
    .map((note) => ({...note, place: placeOf(note.subject)}))
    .filter(({place}) => place !== -1)
    .slice(-MOST_MARKS)
}

/** With scripts, `workbench.js` draws the chart again from `data-option`, with exact values on hover. */
function drawChart(
  shape: ChartShape,
  {title, unit, places, areDays, series, isMatrix}: Chart,
  range: string | undefined,
  noted: readonly {place: number}[],
): Html {
  const isBar = !isOfTime(shape)
  const isTime = areDays && !isBar
  const isMonthly = places[0]?.length === 7
  const shown = series.map((one) => ({
    ...one,
    type: isBar ? 'bar' : 'line',
    symbol: places.length > 40 || (shape === 'area' && places.length > 1) ? 'none' : 'circle',
    symbolSize: 4,
    emphasis: {disabled: true},
    cursor: one.hrefs === undefined ? 'default' : 'pointer',
    triggerEvent: one.hrefs !== undefined,
    ...(shape === 'area' && {stack: 'all', areaStyle: {opacity: 1}, lineStyle: {width: 0}}),
  }))
  // What a stack comes to is told at the pointer.
  const whole = {
    name: 'All',
    type: 'line',
    silent: true,
    symbol: 'none',
    lineStyle: {width: 0},
    itemStyle: {color: 'transparent'},
    data: places.map((_, at) => series.reduce((sum, {data}) => sum + (data[at] ?? 0), 0)),
  }
  const all = shape === 'area' && series.length > 1 ? [...shown, whole] : shown
  // Notes at one place share a mark. One too near to the last name has none.
  const marks = Map.groupBy(noted.keys(), (index) => noted[index]?.place ?? 0)
  let last = -Infinity
  const named = [...marks].map(([place, found]) => {
    const isNear = place - last < places.length / 30
    if (!isNear) last = place
    return {xAxis: places[place], name: isNear ? '' : found.map((index) => index + 1).join(', ')}
  })
  const markLine = {
    silent: true,
    symbol: 'none',
    lineStyle: {color: 'var(--muted)', type: 'dashed'},
    label: {color: 'var(--ink)', formatter: '{b}', distance: 2},
    data: named,
  }
  const values = series.flatMap(({data}) =>
    shape === 'waterfall' ? levelsOf(data).map(([, to]) => to) : data.filter((value) => value !== null),
  )
  const least = values.reduce((one, other) => Math.min(one, other), Infinity)
  const most = values.reduce((one, other) => Math.max(one, other), -Infinity)
  // Where the values are far from zero, their differences would not be seen.
  const min =
    shape === 'waterfall' && least >= 0 ? Math.max(0, least - (most - least || most) / 2) : undefined
  const isFar = values.length > 0 && (least > most / 2 || most < least / 2)
  const isCut = min === undefined ? shape === 'line' && isFar : min > 0
  const top = isCut ? 34 : marks.size > 0 ? 22 : 10
  const option = {
    animation: false,
    color: COLOURS,
    textStyle: {fontFamily: FONT, color: 'var(--muted)'},
    aria: {enabled: true, label: {description: title}},
    grid: {left: 70, right: 34, top, bottom: 26, outerBounds: {bottom: 6}},
    tooltip: {
      trigger: 'axis',
      confine: true,
      backgroundColor: 'var(--paper)',
      borderColor: 'var(--line)',
      textStyle: {color: 'var(--ink)'},
    },
    xAxis: {
      type: isTime ? 'time' : 'category',
      data: places.map(nameOf),
      ...(isTime ? {minInterval: isMonthly ? 28 * DAY_MS : DAY_MS} : {boundaryGap: isBar}),
      axisLine: {lineStyle: {color: 'var(--line)'}},
      axisTick: {show: false},
      // Every bar is named; `workbench.js` turns the names to the width.
      axisLabel: {
        color: 'var(--muted)',
        hideOverlap: isTime,
        ...(isTime && {formatter: isMonthly ? '{yyyy}-{MM}' : '{yyyy}-{MM}-{dd}'}),
        ...(isBar && places.length <= 24 && {interval: 0, width: 100, overflow: 'truncate', rotate: 35}),
      },
    },
    yAxis: {
      type: 'value',
      scale: isCut,
      min,
      ...(isCut && {name: 'The axis does not begin at zero', nameGap: 18, nameTextStyle: {align: 'left'}}),
      splitLine: {lineStyle: {color: 'var(--line)'}},
      axisLabel: {color: 'var(--muted)', showMinLabel: shape !== 'waterfall'},
    },
    series:
      shape === 'waterfall'
        ? shown.flatMap(standOnInvisible)
        : all.map((one, index) => ({
            ...one,
            data: isTime ? one.data.map((value, at) => [places[at], value]) : one.data,
            ...(index === 0 && {markLine}),
          })),
  }
  const drawn = init(null, null, {renderer: 'svg', ssr: true, width: 1100, height: 320})
  try {
    // Labels are round numbers; fewer digits could make two of them equal.
    const format = new Intl.NumberFormat('en-US', {...UNITS[unit], maximumSignificantDigits: 15})
    const axisLabel = {...option.yAxis.axisLabel, formatter: (value: number) => format.format(value)}
    drawn.setOption({...option, yAxis: {...option.yAxis, axisLabel}})
    const legend = html`<figcaption class="key">${series.map(({name, hrefs}, index) => html`<span><svg viewBox="0 0 10 10" aria-hidden="true"><rect width="10" height="10" rx="2" fill="${COLOURS[index % COLOURS.length] ?? ''}"/></svg>${linked(name, typeof hrefs === 'string' ? hrefs : undefined)}</span> `)}</figcaption>`
    return html`<figure class="chart" aria-label="${title}" data-unit="${unit}"${range !== undefined && html` data-range="${range}"`} data-option="${JSON.stringify(option)}">${shape !== 'waterfall' && (series.length > 1 || isMatrix) && legend}<div role="img" aria-label="${title}">${new Html(drawn.renderToSVGString())}</div></figure>`
  } finally {
    drawn.dispose()
  }
}

const nameOf = (name: string) => showControls(name.length > 40 ? `${name.slice(0, 39)}…` : name)

function levelsOf(values: Values): [from: number, to: number][] {
  let level = 0
  return values.map((value, index) => {
    const from = index === 0 || index === values.length - 1 ? 0 : level
    level = from + (value ?? 0)
    return [from, level]
  })
}

function standOnInvisible<Bar extends {data: Values}>(bar: Bar) {
  const levels = levelsOf(bar.data)
  // By default what is below zero is stacked apart.
  const stacked = {...bar, stack: 'all', stackStrategy: 'all'}
  const colourOf = (from: number, to: number, index: number) =>
    index === 0 || index === levels.length - 1 ? COLOURS[0] : to < from ? 'var(--bad)' : 'var(--good)'
  return [
    {
      ...stacked,
      name: '',
      silent: true,
      itemStyle: {color: 'transparent'},
      tooltip: {show: false},
      data: levels.map(([from]) => from),
    },
    {
      ...stacked,
      data: levels.map(([from, to], index) => ({
        value: bar.data[index],
        itemStyle: {color: colourOf(from, to, index)},
      })),
    },
  ]
}
