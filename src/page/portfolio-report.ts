import {formatCents} from '../money.ts'
import {renderAreaChart, renderLegend, type Series} from './area-chart.ts'
import {
  bar,
  type Column,
  count,
  dollars,
  dollarsAtAGlance,
  instant,
  percent,
  ratio,
  table,
} from './figures.ts'
import {type Html, html} from './html.ts'
import {renderPage} from './page.ts'

/** `mart.portfolio_summary`; amounts are decimal text. */
export interface Summary {
  deals: number
  amount: string
  pipeline_deals: number
  pipeline_amount: string
  funded_deals: number
  funded_amount: string
  wa_ltv: number | null
  pooled_ltv: number | null
  ltv_coverage_pct: number | null
  average_amount: string | null
  median_amount: string | null
  largest_amount: string | null
}

/** A row of `mart.portfolio_breakdown`. */
export interface Bucket {
  dimension: string
  bucket: string
  deals: number
  amount: string
  share_pct: number | null
  funded_amount: string
  wa_ltv: number | null
}

/** A row of a table that not every release has: values as text, by column. */
export type Cells = Record<string, string | null>

/** Everything the portfolio report says. */
export interface PortfolioReport {
  generator: string
  release_id: string
  as_of: string
  known_at: string
  observed_until: string
  checks: {
    passed: number
    warned: number
    results: readonly {name: string; failures: number; samples: readonly string[]}[]
  }
  summary: Summary
  buckets: readonly Bucket[]
  days: readonly string[]
  /** Amount by day of each status. */
  positions: readonly Series[]
  quality: readonly {metric: string; value: number | null; deals: number}[]
  /** Rows of `mart.funded_rollforward`, `mart.concentration` and `mart.top_exposure`; null where the release has none. */
  rollforward: readonly Cells[] | null
  concentration: readonly Cells[] | null
  exposures: readonly Cells[] | null
}

/** Buckets a breakdown shows by itself; the rest is one row. */
const SHOWN = 15

/** The portfolio report as one self-contained page. */
export function renderPortfolioReport(report: PortfolioReport): string {
  const body = html`<main class="sheet">
<h1>Portfolio report</h1>
<ul class="facts">
<li>as of <b>${report.as_of}</b></li>
<li>Release <b class="mono">${report.release_id}</b></li>
<li>last walk of <b>${report.observed_until}</b></li>
<li><b>${count(report.checks.passed)}</b> checks passed${report.checks.warned > 0 && html`, <b class="warned">${report.checks.warned} warned</b>`}</li>
<li>all amounts in USD</li>
</ul>
${report.observed_until < report.as_of && html`<p class="notice">There was no walk on ${report.as_of}: the figures are those of ${report.observed_until}.</p>`}
${renderFigures(report.summary)}
<h2>By status</h2>
${renderBreakdown(report, 'status', 'Status')}
<h2>By loan program</h2>
${renderBreakdown(report, 'loan_program', 'Loan program')}
<h2>By loan-to-value</h2>
${renderBreakdown(report, 'ltv_band', 'Loan-to-value, %')}
<h2>By size</h2>
${renderBreakdown(report, 'size_band', 'Loan amount, $')}
<h2>By state</h2>
${renderBreakdown(report, 'state', 'State')}
${renderPositions(report)}
${renderRollforward(report.rollforward)}
${renderConcentration(report.concentration, report.exposures)}
${renderQuality(report)}
<footer>Written by <code>loantape report</code>, ${report.generator}, from release <span class="mono">${report.release_id}</span>, which holds everything known at ${instant(report.known_at)}.</footer>
</main>`
  return renderPage({title: `Portfolio report as of ${report.as_of}`, body})
}

function renderFigures(summary: Summary): Html {
  const figures: [name: string, value: string, note: string][] = [
    [
      'Portfolio',
      dollarsAtAGlance(summary.amount),
      `${count(summary.deals)} deals, ${dollars(summary.amount)}`,
    ],
    [
      'Funded',
      dollarsAtAGlance(summary.funded_amount),
      `${count(summary.funded_deals)} deals, ${dollars(summary.funded_amount)}`,
    ],
    [
      'Pipeline',
      dollarsAtAGlance(summary.pipeline_amount),
      `${count(summary.pipeline_deals)} deals, ${dollars(summary.pipeline_amount)}`,
    ],
    [
      'Weighted loan-to-value',
      ratio(summary.wa_ltv),
      `pooled ${ratio(summary.pooled_ltv)}, known for ${percent(summary.ltv_coverage_pct)} of the amount`,
    ],
    [
      'Median deal',
      dollarsAtAGlance(summary.median_amount),
      `average ${dollarsAtAGlance(summary.average_amount)}, largest ${dollarsAtAGlance(summary.largest_amount)}`,
    ],
  ]
  return html`<div class="figures">${figures.map(
    ([name, value, note]) =>
      html`<div class="figure"><div class="name">${name}</div><div class="value">${value}</div><div class="note">${note}</div></div>`,
  )}</div>`
}

const words = (text: string | null | undefined) => (text ?? '–').replaceAll('_', ' ')

/** Dimensions whose buckets have no order of their own. */
const BY_AMOUNT = ['loan_program', 'state']

function renderBreakdown({buckets, summary}: PortfolioReport, dimension: string, title: string): Html {
  const rows = buckets.filter((bucket) => bucket.dimension === dimension)
  const ordered = BY_AMOUNT.includes(dimension) ? rows.toSorted(byAmount) : rows
  const rest = ordered.slice(SHOWN)
  const shown = rest.length === 0 ? ordered : [...ordered.slice(0, SHOWN), addUp(rest)]
  const longest = Math.max(...shown.map(({share_pct}) => share_pct ?? 0), 1)
  const total: Bucket = {
    ...summary,
    dimension,
    bucket: 'All',
    share_pct: Number(summary.amount) === 0 ? null : 100,
  }
  const columns: Column<Bucket>[] = [
    {title, cell: ({bucket}) => words(bucket)},
    {
      title: '',
      kind: 'bar',
      cell: ({bucket, share_pct}) => bucket !== total.bucket && bar(((share_pct ?? 0) / longest) * 100),
    },
    {title: 'Share', kind: 'number', cell: ({share_pct}) => percent(share_pct)},
    {title: 'Amount', kind: 'number', cell: ({amount}) => dollars(amount)},
    {title: 'Deals', kind: 'number', cell: ({deals}) => count(deals)},
    {title: 'Funded', kind: 'number', cell: ({funded_amount}) => dollars(funded_amount)},
    {title: 'WA LTV', kind: 'number', cell: ({wa_ltv}) => ratio(wa_ltv)},
  ]
  return html`<div class="breakdown">${table(columns, shown, total)}</div>`
}

const byAmount = (a: Bucket, b: Bucket) => Number(b.amount) - Number(a.amount)

/** Several buckets as one; amounts are added in cents. */
function addUp(buckets: readonly Bucket[]): Bucket {
  const cents = (amounts: readonly string[]) =>
    formatCents(amounts.reduce((sum, amount) => sum + BigInt(amount.replace('.', '')), 0n))
  return {
    dimension: '',
    bucket: `${buckets.length} others`,
    deals: buckets.reduce((sum, {deals}) => sum + deals, 0),
    amount: cents(buckets.map(({amount}) => amount)),
    share_pct: buckets.reduce((sum, {share_pct}) => sum + (share_pct ?? 0), 0),
    funded_amount: cents(buckets.map(({funded_amount}) => funded_amount)),
    wa_ltv: null,
  }
}

function renderPositions({days, positions}: PortfolioReport): Html | false {
  if (days.length < 2) return false
  return html`<h2>Position over time</h2>
<p class="muted small">Amount at the end of each business date, by status.</p>
${renderLegend(positions)}
${renderAreaChart(days, positions)}`
}

/** A row's value of a column that a release may lack. */
const cellOf = (column: string) => (row: Cells) => row[column] ?? null
const money = (title: string, column: string): Column<Cells> => ({
  title,
  kind: 'number',
  cell: (row) => dollars(cellOf(column)(row)),
})
const share = (title: string, column: string): Column<Cells> => ({
  title,
  kind: 'number',
  cell: (row) => {
    const value = cellOf(column)(row)
    return percent(value === null ? null : Number(value))
  },
})

/** The terms of a roll-forward, which stand between opening and closing. */
const TERMS = ['originated', 'restored', 'increased', 'decreased', 'reversed', 'vanished', 'ended']

function renderRollforward(rows: PortfolioReport['rollforward']): Html | false {
  if (rows === null || rows.length === 0) return false
  const used = TERMS.filter((term) => rows.some((row) => Number(row[term] ?? 0) !== 0))
  const columns: Column<Cells>[] = [
    {title: 'Month', cell: (row) => words(row.month)},
    money('Opening', 'opening'),
    ...used.map((term) => money(term.charAt(0).toUpperCase() + term.slice(1), term)),
    money('Closing', 'closing'),
  ]
  return html`<h2>Funded roll-forward</h2>
<p class="muted small">Closing = opening + originated + restored + increased − decreased − reversed − vanished − ended; terms that never occurred are left out.</p>
${table(columns, rows.slice(-12))}`
}

function renderConcentration(
  rows: PortfolioReport['concentration'],
  exposures: PortfolioReport['exposures'],
): Html | false {
  if (rows === null) return false
  const deals = (exposures ?? []).filter(({dimension}) => dimension !== 'borrower')
  const columns: Column<Cells>[] = [
    {title: 'Dimension', cell: (row) => words(row.dimension)},
    share('Largest', 'top_1_pct'),
    share('Largest 5', 'top_5_pct'),
    share('Largest 10', 'top_10_pct'),
    {title: 'HHI', kind: 'number', cell: (row) => hhi(row.hhi)},
    share('Largest, funded', 'funded_top_1_pct'),
    {title: 'HHI, funded', kind: 'number', cell: (row) => hhi(row.funded_hhi)},
  ]
  return html`<h2>Concentration</h2>
<p class="muted small">Share of the amount in the largest buckets; the Herfindahl-Hirschman index runs from 0 (spread) to 10,000 (all in one).</p>
${table(columns, rows)}
${deals.length > 0 && html`<h3>Largest funded deals</h3>${table(EXPOSURE_COLUMNS, deals.slice(0, 10))}`}`
}

const hhi = (value: string | null | undefined) =>
  value === null || value === undefined ? '–' : count(Math.round(Number(value)))

const EXPOSURE_COLUMNS: Column<Cells>[] = [
  {title: '#', kind: 'number', cell: (row) => row.rank ?? ''},
  {title: 'Deal', cell: (row) => html`<code>${row.deal_id}</code>`},
  {title: 'Property', cell: (row) => row.property_address ?? '–'},
  {title: 'Program', cell: (row) => words(row.loan_program).replaceAll(' ', '\u00a0')},
  money('Amount', 'loan_amount'),
  share('Share', 'share_pct'),
]

function renderQuality({quality, checks}: PortfolioReport): Html {
  return html`<h2>Data quality</h2>
${
  checks.results.length > 0 &&
  html`<div class="notice">${checks.results.map(
    ({name, failures, samples}) =>
      html`<p><b>${words(name)}</b>: ${count(failures)} ${failures === 1 ? 'row' : 'rows'}, such as ${samples.slice(0, 2).join('; ')}.</p>`,
  )}</div>`
}
<div class="narrow">${table(
    [
      {title: 'Measure', cell: ({metric}) => words(metric)},
      {title: 'Percent', kind: 'number', cell: ({value}) => percent(value, 2)},
      {title: 'Deals or records', kind: 'number', cell: ({deals}) => count(deals)},
    ],
    quality,
  )}</div>
<p class="muted small">For coverage, the deals or records are those without; what each measure is taken of stands in the data dictionary (<code>loantape docs</code>).</p>`
}
