import {centsOf, formatCents} from '../money.ts'
import {renderChart} from '../page/chart.ts'
import {type Column, dollars, linked, ratio, table, words} from '../page/figures.ts'
import {type Html, html} from '../page/html.ts'
import {type RowOf, rowOf} from '../release-row.ts'
import {addressOf, titleOf} from './filter.ts'
import type {View} from './view.ts'

const DIMENSIONS = ['loan_program', 'state', 'status', 'size_band', 'ltv_band', 'created_month']
const MEASURES = {
  open_amount: 'Open amount',
  funded_amount: 'Funded amount',
  open_wa_ltv: 'Open loan-to-value',
  funded_wa_ltv: 'Funded loan-to-value',
}

/** Buckets that colours tell apart, those of most at the end; the others are one, where they can be added. */
const SHOWN = 6

const pointRow = rowOf('mart.portfolio_monthly', ['month_end'], {
  bucket: 'text?',
  amount: 'sum',
  ratio: 'number?',
})
type Point = RowOf<typeof pointRow>

/** The portfolio at the end of each month, every deal as it was then: by what the address says in `by`, of it what `show` says. */
export async function renderOverTime({tables, filter, query}: View): Promise<Html> {
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
