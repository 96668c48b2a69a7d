import {type RowOf, rowOf} from '../build/release-row.ts'
import {centsOf, formatCents} from '../core/money.ts'
import {renderChart} from './chart.ts'
import {bar, type Column, dollars, linked, percent, ratio, table, words} from './figures.ts'
import {addressBehind, addressOf, addressOfPart, isDimension, ofAllDeals, titleOf} from './filter.ts'
import {type Html, html} from './html.ts'
import {readPortfolio, renderPortfolio} from './portfolio-parts.ts'
import type {Page, View} from './view.ts'

const DIMENSIONS = ['loan_program', 'state', 'status', 'size_band', 'ltv_band', 'created_month']
const MEASURES = {
  open_amount: 'Open amount',
  funded_amount: 'Funded amount',
  open_wa_ltv: 'Open loan-to-value',
  funded_wa_ltv: 'Funded loan-to-value',
}

/** The largest buckets at the end, as many as colours can tell apart; the others are summed up if they can be. */
const SHOWN = 6

const pointRow = rowOf('mart.portfolio_monthly', ['month_end'], {
  bucket: 'text?',
  amount: 'sum',
  ratio: 'number?',
})
type Point = RowOf<typeof pointRow>

/** The portfolio at the end of each month, every deal as it was then: the measure `show` by the dimension `by`. */
async function renderOverTime({tables, filter, query}: View): Promise<Html> {
  const dimension = DIMENSIONS.find((name) => name === query.get('by')) ?? 'loan_program'
  const [measure, title] = Object.entries(MEASURES).find(([name]) => name === query.get('show')) ?? [
    'open_amount',
    MEASURES.open_amount,
  ]
  const isAmount = measure.endsWith('amount')
  const points = await tables.all(
    pointRow,
    `with
     placed as (
       select bucket, row_number() over (order by max(month_end) desc, max_by(open_amount, month_end) desc, bucket) as place
       from mart.portfolio_monthly where dimension = $1 group by bucket
     )
     select month_end, case when place <= ${SHOWN} then bucket end as bucket, ${isAmount ? `sum(${measure}) as amount, null as ratio` : `null as amount, any_value(${measure}) as ratio`}
     from mart.portfolio_monthly inner join placed using (bucket)
     where dimension = $1 and (${isAmount} or place <= ${SHOWN})
     group by all order by min(sort_order), month_end`,
    [dimension],
  )
  const months = [...new Set(points.map(({month_end}) => month_end))].sort()
  const buckets = [...Map.groupBy(points, ({bucket}) => bucket)].sort(
    ([a], [b]) => Number(a === null) - Number(b === null),
  )
  const nameOf = (bucket: string | null) => (bucket === null ? 'Others' : words(bucket))
  const pointAt = (own: Point[], month: string) => own.find(({month_end}) => month_end === month)
  const amountAt = (own: Point[], month: string) => pointAt(own, month)?.amount ?? '0.00'
  const ratioAt = (own: Point[], month: string) => pointAt(own, month)?.ratio ?? null
  const columns: Column<string>[] = [
    {title: 'Month end', cell: (month) => html`<span class="day">${month}</span>`},
    ...buckets.map(
      ([bucket, own]): Column<string> => ({
        title: nameOf(bucket),
        kind: 'number',
        cell: (month) => (isAmount ? dollars(amountAt(own, month)) : ratio(ratioAt(own, month))),
      }),
    ),
  ]
  if (isAmount) {
    const all = (month: string) => buckets.reduce((sum, [, own]) => sum + centsOf(amountAt(own, month)), 0n)
    columns.push({title: 'All', kind: 'number', cell: (month) => dollars(formatCents(all(month)))})
  }
  const choose = (name: string, current: string, choices: readonly (readonly [string, string])[]) =>
    choices.map(([value, text]) =>
      linked(
        html`<span${value === current && html` aria-current="true"`}>${text}</span> `,
        here({[name]: [value]}),
      ),
    )
  const here = (change: Record<string, string[]>) =>
    `${addressOf('/portfolio', filter, {by: [dimension], show: [measure], ...change})}#over-time`
  return html`<h2 id="over-time">Month by month</h2>
<p class="choices">${choose('show', measure, Object.entries(MEASURES))}</p>
<p class="choices">By ${choose(
    'by',
    dimension,
    DIMENSIONS.map((name) => [name, titleOf(name)]),
  )}</p>
${
  months.length === 0
    ? html`<p class="muted">Nothing was open at the end of any month.</p>`
    : html`${
        months.length > 1 &&
        renderChart({
          title: `${title} at the end of each month, by ${titleOf(dimension).toLowerCase()}`,
          shape: isAmount ? 'area' : 'line',
          unit: isAmount ? 'usd' : 'ratio',
          places: months,
          series: buckets.map(([bucket, own]) => ({
            name: nameOf(bucket),
            values: months.map((month) => (isAmount ? Number(amountAt(own, month)) : ratioAt(own, month))),
          })),
        })
      }
<details${months.length === 1 && html` open`}><summary>Exact values</summary>${table(columns, months.toReversed())}</details>`
}`
}

type Limit = RowOf<typeof limitRow>
const limitRow = rowOf('mart.limit_status', [
  'name',
  'dimension',
  'bucket',
  'scope',
  'exposure',
  'limit_amount',
  'share_pct',
  'additional_room',
  'excess',
  'state',
  'breached_since',
  'exposure_if_approved_fund',
  'state_if_approved_fund',
])

/** The states of limits in words. */
const STATES: Record<string, string> = {
  breach: ' is exceeded',
  warn: ' is nearly reached',
  ok: ' would be exceeded',
}

/** Limits are about the whole portfolio, whatever the filter. */
async function listLimits(view: View): Promise<Limit[]> {
  return view.whole.all(
    limitRow,
    `from mart.limit_status
     order by state <> 'breach', state <> 'warn', state_if_approved_fund <> 'breach', name`,
  )
}

/** What counts under a limit, and the page of its deals. */
const exposureOf = ({filter}: View, {exposure, scope, dimension, bucket}: Limit) =>
  linked(
    dollars(exposure),
    Number(exposure) === 0
      ? undefined
      : addressOf('/deals', ofAllDeals(filter), {part: [scope], [dimension]: [bucket]}),
  )

/** Limits that are exceeded, nearly reached, or would be exceeded if all that is approved funded. */
export async function listBrokenLimits(view: View): Promise<Html[]> {
  const limits = await listLimits(view)
  const broken = limits.filter((limit) => limit.state !== 'ok' || limit.state_if_approved_fund === 'breach')
  return broken.map((limit) => {
    const {name, state, exposure, limit_amount, breached_since} = limit
    const then = `${dollars(limit.exposure_if_approved_fund)} if all that is approved funded`
    return html`<b class="${state === 'breach' ? 'failed' : 'warned'}">Limit ${name}${STATES[state]}</b>${breached_since && ` since ${breached_since}`}: ${exposureOf(view, limit)} of ${dollars(limit_amount)}${limit.state_if_approved_fund === 'breach' && limit.exposure_if_approved_fund !== exposure && `, ${then}`}`
  })
}

/** Every limit as a bar of how much of it is used. */
async function renderLimits(view: View): Promise<Html | false> {
  const limits = await listLimits(view)
  const usedOf = ({exposure, limit_amount}: Limit) =>
    Number(limit_amount) === 0 ? null : (Number(exposure) / Number(limit_amount)) * 100
  const columns: Column<Limit>[] = [
    {title: 'Limit', cell: ({name}) => name},
    {title: '', kind: 'bar', cell: (limit) => bar(usedOf(limit))},
    {title: 'Used', kind: 'number', cell: (limit) => percent(usedOf(limit))},
    {
      title: 'Exposure',
      kind: 'number',
      cell: (limit) => exposureOf(view, limit),
    },
    {title: 'Share', kind: 'number', cell: ({share_pct}) => percent(share_pct)},
    {title: 'Of', cell: ({scope}) => words(scope)},
    {title: 'Limit today', kind: 'number', cell: ({limit_amount}) => dollars(limit_amount)},
    {
      title: 'Room',
      kind: 'number',
      cell: ({state, additional_room: room}) =>
        state === 'breach' ? '–' : room === null ? 'any' : dollars(room),
    },
    {
      title: 'Excess',
      kind: 'number',
      cell: ({state, excess, breached_since}) =>
        state === 'breach'
          ? html`<b class="failed">${dollars(excess)}</b> since <span class="day">${breached_since}</span>`
          : '–',
    },
  ]
  return (
    limits.length > 0 &&
    html`<h2>Limits</h2>
<p class="muted small">Of all deals, whatever is chosen above. Room is what can still be lent until the limit is reached; new lending enlarges the total of which a share is taken.</p>
${table(columns, limits)}`
  )
}

/** `/portfolio`: what the report says, of the deals that were filtered; a bucket leads to itself. */
export async function viewPortfolio(view: View): Promise<Page> {
  const {tables, release, filter} = view
  const portfolio = await readPortfolio(tables, release.manifest)
  if (portfolio.summary.deals === 0)
    return {
      title: 'Portfolio',
      body:
        filter.condition === undefined
          ? html`<p class="empty">There are no deals.</p>`
          : html`<p class="empty">No deal is like that. <a href="/portfolio">All deals</a></p>`,
    }
  const body = renderPortfolio({
    ...portfolio,
    links: {
      bucket: (dimension, bucket) =>
        isDimension(dimension) ? addressOf('/portfolio', filter, {[dimension]: [bucket]}) : undefined,
      deals(part, dimension, bucket = '') {
        const changes = dimension === undefined ? {} : {[dimension]: [bucket]}
        return part === undefined
          ? addressOf('/deals', filter, changes)
          : addressOfPart(filter, part, changes)
      },
      behind: (number, asked) => addressBehind(number, filter, asked),
      deal: addressOfDeal,
    },
  })
  return {title: 'Portfolio', body: html`${body}${await renderLimits(view)}${await renderOverTime(view)}`}
}

/** The page of a deal. */
export const addressOfDeal = (dealId: string) => `/deals/${encodeURIComponent(dealId)}`
