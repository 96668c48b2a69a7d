// Shows the progress of the present run, then that there is another release. When a run has ended, the page of runs reloads
// itself, unless somebody is writing into it. Compares with what the page says that it shows, so that nothing is missed between
// two answers.
const live = document.querySelector('#live')
const shown = {...live.dataset}
const isWrittenInto = () =>
  document.querySelector('details.ask[open]') !== null ||
  [...document.querySelectorAll('input, textarea')].some(
    (field) => field === document.activeElement || field.value !== field.defaultValue,
  )
const say = (words) => {
  // Setting the same text again would be read aloud again.
  if (live.textContent !== words) live.textContent = words
}
const follow = async () => {
  const isSeen = !document.hidden
  const answer = isSeen
    ? await fetch('/runs/live', {signal: AbortSignal.timeout(10_000)}).catch(() => undefined)
    : undefined
  // Stops here: the browser would ask for the password again and again.
  if (answer?.status === 401) return
  const now = answer?.ok ? await answer.json().catch(() => undefined) : undefined
  if (now) {
    if (now.running) shown.running = 'true'
    const hasRun = shown.running === 'true' || now.begun !== shown.begun
    const hasEnded = hasRun && !now.running && location.pathname === '/runs'
    if (hasEnded && !isWrittenInto()) return location.reload()
    const isReplaced = ![undefined, now.release].includes(shown.release)
    const news = hasEnded
      ? 'ended; load the page again to see how'
      : isReplaced && 'another release: load the page again'
    say((!now.running && news) || now.words)
    live.dataset.running = now.running
  } else if (isSeen) say('the server does not answer')
  setTimeout(follow, 1000)
}
setTimeout(follow, 1000)

// Asks before a text that nobody sent, or only to preview it, is left behind.
addEventListener('submit', ({target}) => {
  for (const text of target.querySelectorAll('textarea')) {
    text.defaultValue = text.value
    delete text.dataset.unsaved
  }
})
addEventListener('beforeunload', (event) => {
  // After Back, a text that was saved lacks the end of its last line.
  const isLeft = ({value, defaultValue, dataset}) =>
    dataset.unsaved !== undefined || value.trimEnd() !== defaultValue.trimEnd()
  if ([...document.querySelectorAll('textarea')].some(isLeft)) event.preventDefault()
})

// `/` goes to the search, unless somebody is writing; Escape closes what is open around the focus.
addEventListener('keydown', (event) => {
  const {key, ctrlKey, metaKey, altKey, target} = event
  const around = key === 'Escape' && target.closest?.('details[open]')
  if (around) {
    around.open = false
    around.querySelector('summary').focus()
  }
  if (key !== '/' || ctrlKey || metaKey || altKey) return
  if (target.isContentEditable || target.matches?.('input, textarea, select')) return
  event.preventDefault()
  const search = document.querySelector('.search [name=q]')
  search.focus()
  search.select()
})

// Spreadsheets take an amount with the sign of typesetters, or with a plus, for text. What people write stays as it is.
addEventListener('copy', (event) => {
  const selection = getSelection()
  const signed = (text) => text.replaceAll(/−(?=\$\d)/g, '-').replaceAll(/\+(?=\$\d)/g, '')
  const text = signed(String(selection))
  const isWritten = event.defaultPrevented || event.target.matches?.('input, textarea')
  if (isWritten || selection.rangeCount !== 1 || text === String(selection)) return
  const range = selection.getRangeAt(0)
  const isOfTable = /^(TABLE|THEAD|TBODY|TR)$/.test(range.commonAncestorContainer.nodeName)
  const copy = document.createElement(isOfTable ? 'table' : 'div')
  copy.append(range.cloneContents())
  for (const hidden of copy.querySelectorAll('form, svg, details:not([open])')) hidden.remove()
  for (const link of copy.querySelectorAll('a[href]')) link.setAttribute('href', link.href)
  event.clipboardData.setData('text/plain', text)
  event.clipboardData.setData('text/html', signed(copy.outerHTML))
  event.preventDefault()
})

// Leaves empty fields out of the address.
addEventListener('formdata', ({target, formData}) => {
  if (!target.matches('.filter form, .against')) return
  for (const {name, value} of target.querySelectorAll('label > input:not([type=checkbox])'))
    if (value === '') formData.delete(name)
})

// Charts: redrawn at the available width, with exact values at the pointer.
const formats = {
  usd: [
    {style: 'currency', currency: 'USD'},
    {style: 'currency', currency: 'USD', notation: 'compact'},
  ],
  ratio: [{style: 'percent', maximumFractionDigits: 2}, {style: 'percent'}],
  number: [{maximumFractionDigits: 9}, {notation: 'compact'}],
}
// The index of the place nearest to a value of the axis, which is an instant for days and months.
const indexAt = ({type, data}, value) => {
  if (type !== 'time') return Math.max(0, Math.min(value, data.length - 1))
  const away = data.map((day) => Math.abs(new Date(`${day}${day.length === 7 ? '-01' : ''}T00:00`) - value))
  return away.indexOf(Math.min(...away))
}
// Dragging over days or months selects them, as the fields below the chart do.
const letChoose = (chart, figure, {xAxis}) => {
  const brushOption = {brushType: 'lineX', brushMode: 'single'}
  chart.setOption({brush: {xAxisIndex: 0, toolbox: [], ...brushOption}})
  chart.dispatchAction({type: 'takeGlobalCursor', key: 'brush', brushOption})
  figure.dataset.chooses = ''
  chart.on('brushEnd', ({areas: [area]}) => {
    if (!area) return
    const [from, to] = area.coordRange.map((at) => xAxis.data[indexAt(xAxis, at)])
    const lastOf = (month) =>
      new Date(Date.UTC(...month.split('-').map(Number), 0)).toISOString().slice(0, 10)
    const query = new URLSearchParams(location.search)
    query.delete('page')
    query.set(`${figure.dataset.range}_from`, from.length === 7 ? `${from}-01` : from)
    query.set(`${figure.dataset.range}_to`, to.length === 7 ? lastOf(to) : to)
    location.search = query
  })
}
// A click on a value follows its link.
const letLead = (chart, {series, xAxis}) => {
  const hrefOf = ({seriesIndex, dataIndex, event}) => {
    const {hrefs} = series[seriesIndex]
    const [value] = chart.convertFromPixel({gridIndex: 0}, [event.offsetX, event.offsetY])
    const at = dataIndex ?? indexAt(xAxis, value)
    return typeof hrefs === 'string' ? hrefs : hrefs?.[at]
  }
  chart.on('click', 'series', (clicked) => {
    const href = hrefOf(clicked)
    if (href) location.href = href
  })
}
// Adds a button that saves a chart as a picture for documents: in light colours, with its title, day and legend, at twice the
// size.
const addPicture = (figure) => {
  const lightOf = (name) =>
    getComputedStyle(figure)
      .getPropertyValue(name)
      .replace(/^light-dark\((.*?),.*$/, '$1')
  const inLight = (text) => text.replaceAll(/var\((--[\w-]+)\)/g, (_whole, name) => lightOf(name))
  const save = async () => {
    const svg = figure.querySelector('[role=img] svg')
    const {width, height} = svg.getBoundingClientRect()
    const image = new Image()
    image.src = `data:image/svg+xml,${encodeURIComponent(inLight(new XMLSerializer().serializeToString(svg)))}`
    await image.decode()
    const pen = document.createElement('canvas').getContext('2d')
    const font = '12px system-ui, sans-serif'
    pen.font = font
    // Each name of the legend follows the previous one, or starts a new line.
    let [left, line] = [14, 42]
    const legend = [...figure.querySelectorAll('.key span')].map((span) => {
      const name = span.textContent
      const needs = pen.measureText(name).width + 34
      if (left + needs > width && left > 14) [left, line] = [14, line + 18]
      left += needs
      return {
        name,
        colour: inLight(span.querySelector('rect').getAttribute('fill')),
        x: left - needs,
        y: line,
      }
    })
    const top = legend.length > 0 ? line + 10 : 30
    Object.assign(pen.canvas, {width: 2 * width, height: 2 * (height + top)})
    pen.scale(2, 2)
    const write = (text, x, y, colour) => {
      pen.fillStyle = colour
      pen.fillText(text, x, y)
    }
    pen.fillStyle = lightOf('--paper')
    pen.fillRect(0, 0, width, height + top)
    pen.drawImage(image, 0, top, width, height)
    const title = [figure.ariaLabel, document.querySelector('.facts b')?.textContent].filter(Boolean)
    pen.font = `600 ${font}`
    write(title.join(', as of '), 14, 20, lightOf('--ink'))
    pen.font = font
    for (const {name, colour, x, y} of legend) {
      write('■', x, y, colour)
      write(name, x + 15, y, lightOf('--ink'))
    }
    const link = document.createElement('a')
    link.href = pen.canvas.toDataURL()
    link.download = `${title.join(' ').replaceAll(/[^\w-]+/g, '-')}.png`
    link.click()
  }
  const button = document.createElement('button')
  Object.assign(button, {type: 'button', className: 'picture', textContent: 'PNG', ariaLabel: 'Chart as PNG'})
  button.onclick = save
  figure.append(button)
}
// Nothing is measured for printing: the width of A4 between the margins.
const PRINTED_WIDTH = 680
const figures = [...document.querySelectorAll('figure.chart')]
if (figures.length > 0) {
  const {init} = await import('/assets/echarts.js')
  for (const figure of figures) {
    const [precise, compact] = formats[figure.dataset.unit]
    const exact = new Intl.NumberFormat('en-US', precise)
    const short = new Intl.NumberFormat('en-US', {...compact, maximumSignificantDigits: 15})
    const option = JSON.parse(figure.dataset.option)
    option.tooltip.valueFormatter = (value) => (value === null ? '–' : exact.format(value))
    option.yAxis.axisLabel.formatter = (value) => short.format(value)
    if (option.xAxis.type === 'time')
      option.xAxis.axisPointer = {
        label: {formatter: ({value}) => option.xAxis.data[indexAt(option.xAxis, value)]},
      }
    const drawing = figure.querySelector('[role=img]')
    drawing.replaceChildren()
    drawing.style.height = '300px'
    const chart = init(drawing, null, {renderer: 'svg'})
    const {data, axisLabel} = option.xAxis
    let drawn
    // Draws at most once for each width.
    const fit = (width = drawing.clientWidth) => {
      if (width === drawn) return
      drawn = width
      const perName = (width - 104) / data.length
      // Turned by less, names of narrow bars lie over each other.
      if (axisLabel.interval === 0) axisLabel.rotate = perName >= 110 ? 0 : perName >= 24 ? 35 : 90
      chart.resize({width})
      chart.setOption(option)
      chart.getZr().flush()
    }
    fit()
    new ResizeObserver(() => matchMedia('print').matches || fit()).observe(drawing)
    addEventListener('beforeprint', () => fit(PRINTED_WIDTH))
    addEventListener('afterprint', () => fit())
    addPicture(figure)
    // Without a fine pointer, a tap shows the exact values.
    if (!matchMedia('(pointer: fine)').matches) continue
    letLead(chart, option)
    if (figure.dataset.range) letChoose(chart, figure, option)
  }
}
