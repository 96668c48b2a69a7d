import {z} from 'zod'
import {renderChart} from '../page/chart.ts'
import {bar, type Column, count, dollars, linked, percent, table, words} from '../page/figures.ts'
import {type Html, html} from '../page/html.ts'
import {addressOf} from './filter.ts'
import {hasTable} from './tables.ts'
import type {Page, View} from './view.ts'

const whole = z.coerce.number()
const text = z.string().nullable()

const agingRow = z.object({
  status: z.string(),
  age_band: z.string(),
  deals: whole,
  amount: z.string(),
  stuck: whole,
})
const stageRow = z.object({
  status: z.string(),
  completed: whole,
  median_days: z.coerce.number().nullable(),
  p90_days: z.coerce.number().nullable(),
  still_open: whole,
})
const wayRow = z.object({
  from_status: z.string(),
  to_status: z.string(),
  deals: whole,
  amount: z.string(),
  roll_rate_pct: z.coerce.number().nullable(),
})
const pullRow = z.object({
  month: z.string(),
  entered: whole,
  funded: whole,
  pull_through_pct: z.coerce.number().nullable(),
  cohort_funded: whole,
  cohort_pull_through_pct: z.coerce.number().nullable(),
})
const stepRow = z.object({
  status: z.string(),
  reached_deals: whole,
  reached_amount: z.string(),
  conversion_pct: z.coerce.number().nullable(),
})
const vintageRow = z.object({cohort_month: z.string(), age_months: whole, funded_pct: z.coerce.number()})
const monthRow = z.object({month: text})

/** Cohorts that the chart of vintages shows: more lines cannot be told apart. */
const COHORTS = 7

/** `/pipeline`: how old it is, how long each status takes, what became of the deals of a month, and how many are funded. */
export async function viewPipeline(view: View): Promise<Page> {
  const {tables, filter, query} = view
  if (!hasTable(view, 'mart.pipeline_aging'))
    return {
      title: 'Pipeline',
      body: html`<p class="empty">This release was built by an earlier version, without the tables of this page.</p>`,
    }
  const aging = await tables.all(
    agingRow,
    `select status, age_band, count(*) as deals, cast(sum(loan_amount) as decimal(38, 2)) as amount,
       count(*) filter (where is_stuck) as stuck
     from mart.pipeline_aging left join seed.status using (status)
     group by status, age_band, sort_order order by sort_order, status, min(days_in_status)`,
  )
  const stages = await tables.all(
    stageRow,
    'select stage.* from mart.stage_duration as stage left join seed.status using (status) order by sort_order nulls last, status',
  )
  const months = await tables.all(
    monthRow,
    'select distinct month from mart.status_transition order by month desc',
  )
  const month = months.find((one) => one.month === query.get('month'))?.month ?? months[0]?.month ?? null
  const ways = await tables.all(
    wayRow,
    `select way.* from mart.status_transition as way
     left join seed.status as was on was.status = from_status left join seed.status as became on became.status = to_status
     where month = $1 order by was.sort_order nulls last, from_status, became.sort_order nulls last, to_status`,
    [month],
  )
  const steps = await tables.all(
    stepRow,
    `select step.* from mart.pipeline_funnel as step inner join seed.status using (status)
     where cohort_month = $1 order by sort_order`,
    [month],
  )
  const pull = await tables.all(pullRow, 'from mart.pull_through order by month desc')
  const vintages = await tables.all(vintageRow, 'from mart.vintage_curve order by cohort_month, age_months')
  const statusLink = (status: string) =>
    linked(words(status), addressOf('/deals', filter, {status: [status]}))
  const body = html`<h2>How old it is</h2>
<p class="muted small">Deals of the pipeline by the days they have been in their status. Stuck: longer than nine in ten were. <a href="${addressOf('/tables/mart.pipeline_aging', filter)}">Each deal</a></p>
${orNone(
  aging,
  [
    {title: 'Status', cell: ({status}) => statusLink(status)},
    {title: 'Days', cell: ({age_band}) => age_band},
    {title: 'Deals', kind: 'number', cell: ({deals}) => count(deals)},
    {title: 'Amount', kind: 'number', cell: ({amount}) => dollars(amount)},
    {
      title: 'Stuck',
      kind: 'number',
      cell: ({stuck}) => (stuck === 0 ? '–' : html`<b class="warned">${count(stuck)}</b>`),
    },
  ],
  'Nothing is in the pipeline.',
)}
<h2>How long a status takes</h2>
${orNone(
  stages,
  [
    {title: 'Status', cell: ({status}) => statusLink(status)},
    {title: 'Completed', kind: 'number', cell: ({completed}) => count(completed)},
    {title: 'Median days', kind: 'number', cell: ({median_days}) => count(median_days)},
    {title: 'Nine in ten within', kind: 'number', cell: ({p90_days}) => count(p90_days)},
    {title: 'Now in it', kind: 'number', cell: ({still_open}) => count(still_open)},
  ],
  'No status was seen yet.',
)}
<h2>What became of the deals of ${month ?? 'a month'}</h2>
<p class="choices">${months.slice(0, 12).map((one) => one.month !== null && html`<a href="${addressOf('/pipeline', filter, {month: [one.month]})}"${one.month === month && html` aria-current="true"`}>${one.month}</a> `)}</p>
${orNone(
  ways,
  [
    {title: 'From', cell: ({from_status}) => words(from_status)},
    {title: 'To', cell: ({to_status}) => words(to_status)},
    {title: 'Deals', kind: 'number', cell: ({deals}) => count(deals)},
    {title: 'Amount', kind: 'number', cell: ({amount}) => dollars(amount)},
    {title: 'Roll rate', kind: 'number', cell: ({roll_rate_pct}) => percent(roll_rate_pct)},
  ],
  'No deal was there.',
)}
<h2>How far the deals created in ${month ?? 'a month'} got</h2>
${orNone(
  steps,
  [
    {title: 'Reached', cell: ({status}) => words(status)},
    {title: '', kind: 'bar', cell: ({conversion_pct}) => bar(conversion_pct)},
    {title: 'Of all', kind: 'number', cell: ({conversion_pct}) => percent(conversion_pct)},
    {title: 'Deals', kind: 'number', cell: ({reached_deals}) => count(reached_deals)},
    {title: 'Amount', kind: 'number', cell: ({reached_amount}) => dollars(reached_amount)},
  ],
  'No deal was created in it.',
)}
<h2>How much of it is funded</h2>
${orNone(
  pull,
  [
    {title: 'Month', cell: (row) => row.month},
    {title: 'Entered', kind: 'number', cell: ({entered}) => count(entered)},
    {title: 'Funded in it', kind: 'number', cell: ({funded}) => count(funded)},
    {title: 'Pull-through', kind: 'number', cell: ({pull_through_pct}) => percent(pull_through_pct)},
    {title: 'Funded of those', kind: 'number', cell: ({cohort_funded}) => count(cohort_funded)},
    {
      title: 'Of the cohort',
      kind: 'number',
      cell: ({cohort_pull_through_pct}) => percent(cohort_pull_through_pct),
    },
  ],
  'No month was seen yet.',
)}
${renderVintages(vintages)}`
  return {title: 'Pipeline', body}
}

function orNone<Row>(rows: readonly Row[], columns: readonly Column<Row>[], none: string): Html {
  return rows.length === 0 ? html`<p class="empty">${none}</p>` : table(columns, rows)
}

function renderVintages(rows: readonly z.output<typeof vintageRow>[]): Html | false {
  const cohorts = [...Map.groupBy(rows, ({cohort_month}) => cohort_month)].slice(-COHORTS)
  const oldest = Math.max(...cohorts.flatMap(([, curve]) => curve.map(({age_months}) => age_months)), 0)
  if (oldest === 0) return false
  const ages = Array.from({length: oldest + 1}, (_, age) => age)
  return html`<h2>How fast a month's deals are funded</h2>
<p class="muted small">Share of the deals created in a month that were funded by the end of so many months after it.</p>
${renderChart({
  title: 'Funded share by age of the cohort',
  shape: 'line',
  unit: 'ratio',
  places: ages.map((age) => `${age} ${age === 1 ? 'month' : 'months'}`),
  series: cohorts.map(([name, curve]) => ({
    name,
    values: ages.map((age) => {
      const found = curve.find(({age_months}) => age_months === age)
      return found ? found.funded_pct / 100 : null
    }),
  })),
})}`
}
