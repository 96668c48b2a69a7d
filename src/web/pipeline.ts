import {type RowOf, rowOf} from '../build/release-row.ts'
import {renderChart} from './chart.ts'
import {bar, type Column, count, dollars, linked, percent, table, words} from './figures.ts'
import {type Ask, addressBehind, addressOf} from './filter.ts'
import {type Html, html} from './html.ts'
import type {Page, View} from './view.ts'

const agingRow = rowOf('mart.pipeline_aging', ['status', 'age_band'], {
  deals: 'count',
  amount: 'sum',
  stuck: 'count',
})
const stageRow = rowOf('mart.stage_duration', [
  'status',
  'exit',
  'completed',
  'at_risk',
  'median_days',
  'p90_days',
])
const wayRow = rowOf('mart.status_transition', [
  'from_status',
  'to_status',
  'deals',
  'amount',
  'roll_rate_pct',
  'roll_rate_amount_pct',
  'is_partial',
])
const pullRow = rowOf('mart.pull_through', [
  'month',
  'entered',
  'funded',
  'fallout',
  'pull_through_pct',
  'fallout_pct',
  'cohort_funded',
  'cohort_pull_through_pct',
])
const stepRow = rowOf('mart.pipeline_funnel', ['status', 'reached_deals', 'reached_amount', 'conversion_pct'])
const curveRow = rowOf('mart.funding_curve', ['cohort_month', 'age_months', 'funded_pct'])
const monthRow = rowOf('mart.status_transition', ['month'])

const EXITS: Record<string, string> = {
  any: 'all',
  advance: 'to a later status',
  fallout: 'fell out',
  vanish: 'vanished',
}

/** Most cohorts in the chart of funding curves: more lines cannot be told apart. */
const COHORTS = 7

/** `/pipeline`: how old it is, how long each status takes, what became of the deals of a month, and how many are funded. */
export async function viewPipeline(view: View): Promise<Page> {
  const {tables, filter, query} = view
  const aging = await tables.all(
    agingRow,
    `select status, age_band, count(*) as deals, sum(loan_amount) as amount,
       count(*) filter (where is_stuck) as stuck
     from mart.pipeline_aging left join seed.status using (status)
     group by status, age_band, sort_order order by sort_order, status, min(days_in_status)`,
  )
  const stages = await tables.all(
    stageRow,
    `select stage.* from mart.stage_duration as stage left join seed.status using (status)
     where coalesce(not starts_with(class, 'ended'), true) and (completed > 0 or exit = 'any' and at_risk > 0)
     order by sort_order nulls last, status, exit <> 'any', exit`,
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
  const pull = await tables.all(
    pullRow,
    `from mart.pull_through where loan_program = '(all)' order by month desc`,
  )
  const curves = await tables.all(curveRow, 'from mart.funding_curve order by cohort_month, age_months')
  const deals = (number: number, name: string, asked: Partial<Record<Ask, string>>) =>
    number === 0 ? '0' : linked(count(number), addressBehind(name, filter, asked))
  const statusLink = (status: string) =>
    linked(words(status), addressOf('/deals', filter, {status: [status]}))
  const body = html`<h2>How old it is</h2>
<p class="muted small">Deals of the pipeline by the days they have been in their status. Where nobody saw the status begin, the days are at least those; stuck is what certainly takes longer than nine in ten do. <a href="${addressOf('/tables/mart.pipeline_aging', filter)}">Each deal</a></p>
${orNone(
  aging,
  [
    {title: 'Status', cell: ({status}) => statusLink(status)},
    {title: 'Days', cell: ({age_band}) => age_band},
    {
      title: 'Deals',
      kind: 'number',
      cell: (row) => deals(row.deals, 'aging', {in_status: row.status, age_band: row.age_band}),
    },
    {title: 'Amount', kind: 'number', cell: ({amount}) => dollars(amount)},
    {
      title: 'Stuck',
      kind: 'number',
      cell: ({stuck, status, age_band}) =>
        stuck === 0
          ? '–'
          : html`<b class="warned">${deals(stuck, 'aging_stuck', {in_status: status, age_band})}</b>`,
    },
  ],
  'Nothing is in the pipeline.',
)}
<h2>How long a status takes</h2>
<p class="muted small">Calendar days until a deal leaves it, those that are still in it counted as long as they have been (Kaplan–Meier); – where not enough have left yet. Of one exit, those that left by another count until then. Deals of which nobody knows how long they had been in it when first seen are left out.</p>
${orNone(
  stages,
  [
    {title: 'Status', cell: ({status}) => statusLink(status)},
    {title: 'Exit', cell: ({exit}) => EXITS[exit] ?? exit},
    {title: 'Left it', kind: 'number', cell: ({completed}) => count(completed)},
    {title: 'Still in it', kind: 'number', cell: ({at_risk}) => count(at_risk)},
    {title: 'Median days', kind: 'number', cell: ({median_days}) => count(median_days)},
    {title: 'Nine in ten within', kind: 'number', cell: ({p90_days}) => count(p90_days)},
  ],
  'No deal was seen to begin in a status yet.',
)}
<h2>What became of the deals of <span class="day">${month ?? 'a month'}</span></h2>
<p class="choices">${months.slice(0, 12).map((one) => one.month !== null && html`<a href="${addressOf('/pipeline', filter, {month: [one.month]})}"${one.month === month && html` aria-current="true"`}>${one.month}</a> `)}</p>
${ways[0]?.is_partial && html`<p class="muted small">Only a part of this month was observed: it is the running one, or that of the first walk.</p>`}
${orNone(
  ways,
  [
    {
      title: 'From → to',
      cell: ({from_status, to_status}) =>
        html`<bdi>${words(from_status)}</bdi> → <bdi>${words(to_status)}</bdi>`,
    },
    {title: 'Amount', kind: 'number', cell: ({amount}) => dollars(amount)},
    {
      title: 'Deals',
      kind: 'number',
      cell: (row) => deals(row.deals, 'way', {month: month ?? '', from: row.from_status, to: row.to_status}),
    },
    {title: 'Roll rate', kind: 'number', cell: ({roll_rate_pct}) => percent(roll_rate_pct)},
    {title: 'By amount', kind: 'number', cell: (row) => percent(row.roll_rate_amount_pct)},
  ],
  'No deal was there.',
)}
<h2>How far the deals created in <span class="day">${month ?? 'a month'}</span> got</h2>
${orNone(
  steps,
  [
    {title: 'Reached', cell: ({status}) => words(status)},
    {title: '', kind: 'bar', cell: ({conversion_pct}) => bar(conversion_pct)},
    {title: 'Of all', kind: 'number', cell: ({conversion_pct}) => percent(conversion_pct)},
    {
      title: 'Deals',
      kind: 'number',
      cell: ({reached_deals, status}) =>
        deals(reached_deals, 'reached', {month: month ?? '', in_status: status}),
    },
    {title: 'Amount', kind: 'number', cell: ({reached_amount}) => dollars(reached_amount)},
  ],
  'No deal was created in it.',
)}
<h2>How much of it is funded</h2>
<p class="muted small">The shares of a month that began before the first walk are not known. <a href="${addressOf('/tables/mart.pull_through', filter)}">By program and amount</a></p>
${orNone(
  pull,
  [
    {title: 'Month', cell: (row) => row.month},
    {title: 'Entered', kind: 'number', cell: (row) => deals(row.entered, 'entered', {month: row.month})},
    {
      title: 'Funded in it',
      kind: 'number',
      cell: (row) => deals(row.funded, 'funded_in', {month: row.month}),
    },
    {title: 'Pull-through', kind: 'number', cell: ({pull_through_pct}) => orUnknown(pull_through_pct)},
    {
      title: 'Fell out in it',
      kind: 'number',
      cell: (row) => deals(row.fallout, 'fell_out_in', {month: row.month}),
    },
    {title: 'Fallout', kind: 'number', cell: ({fallout_pct}) => orUnknown(fallout_pct)},
    {
      title: 'Funded of those',
      kind: 'number',
      cell: (row) => deals(row.cohort_funded, 'cohort_funded', {month: row.month}),
    },
    {
      title: 'Of the cohort',
      kind: 'number',
      cell: ({cohort_pull_through_pct}) => orUnknown(cohort_pull_through_pct),
    },
  ],
  'No month was seen yet.',
)}
${renderCurves(curves)}`
  return {title: 'Pipeline', body}
}

/** A share, or a dash if it is unknown: unknown is not 0 %. */
const orUnknown = (share: number | null) => (share === null ? 'unknown' : percent(share))

function orNone<Row>(rows: readonly Row[], columns: readonly Column<Row>[], none: string): Html {
  return rows.length === 0 ? html`<p class="empty">${none}</p>` : table(columns, rows)
}

function renderCurves(rows: readonly RowOf<typeof curveRow>[]): Html | false {
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
