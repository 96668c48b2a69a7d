import type {ReleaseManifest} from '../release-manifest.ts'
import {type Portfolio, renderBreakdown, renderStatuses} from './breakdown.ts'
import {renderChart, type Series} from './chart.ts'
import {
  type Column,
  count,
  countOf,
  dollars,
  dollarsAtAGlance,
  figures,
  linked,
  percent,
  ratio,
  table,
  words,
} from './figures.ts'
import {type Html, html} from './html.ts'

/** A row of a table that not every release has: values as text, by column. */
export type Cells = Record<string, string | null>

/** Everything the portfolio report says. */
export interface PortfolioReport extends Portfolio, ReleaseManifest {
  days: readonly string[]
  /** Amount by day of each status that is open. */
  positions: readonly Series[]
  quality: readonly {measure: string | null; value: number | null; deals: number}[]
  /** Rows of `mart.funded_rollforward`, `mart.concentration` and `mart.top_exposure`; null where the release has none. */
  rollforward: readonly Cells[] | null
  concentration: readonly Cells[] | null
  exposures: readonly Cells[] | null
}

/** Figures, breakdowns, positions, roll-forward and concentration of some deals. */
export function renderPortfolio(report: PortfolioReport): Html {
  return html`${report.observed_until < report.as_of && html`<p class="notice">There was no walk on ${report.as_of}: the figures are those of ${report.observed_until}.</p>`}
${renderFigures(report)}
${renderPositions(report)}
<h2>By status</h2>
${renderStatuses(report)}
<h2>Open deals by loan program</h2>
<p class="muted small">In the pipeline, funded, or of a status nobody has classified; what has ended stands above, under its status.</p>
${renderBreakdown(report, 'loan_program', 'Loan program')}
<h2>Open deals by loan-to-value</h2>
${renderBreakdown(report, 'ltv_band', 'Loan-to-value, %')}
<h2>Open deals by size</h2>
${renderBreakdown(report, 'size_band', 'Loan amount, $')}
<h2>Open deals by state</h2>
${renderBreakdown(report, 'state', 'State')}
${renderRollforward(report)}
${renderConcentration(report)}`
}

function renderFigures({summary, links}: PortfolioReport): Html {
  return figures([
    {
      name: 'Open',
      value: dollarsAtAGlance(summary.open_amount),
      note: exactly(summary.open_deals, summary.open_amount),
      href: links?.deals('open'),
    },
    {
      name: 'Funded',
      value: dollarsAtAGlance(summary.funded_amount),
      note: exactly(summary.funded_deals, summary.funded_amount),
      href: links?.deals('funded'),
    },
    {
      name: 'Pipeline',
      value: dollarsAtAGlance(summary.pipeline_amount),
      note: exactly(summary.pipeline_deals, summary.pipeline_amount),
      href: links?.deals('pipeline'),
    },
    {
      name: 'Weighted loan-to-value',
      value: ratio(summary.open_wa_ltv),
      note: `of what is open; funded ${ratio(summary.funded_wa_ltv)}. Taken of ${percent(summary.open_ltv_coverage_pct)} of the open amount`,
    },
    {
      name: 'Ended',
      value: dollarsAtAGlance(summary.ended_amount),
      note: `${exactly(summary.ended_deals, summary.ended_amount)}: with the open ones all that the source lists`,
      href: links?.deals('ended'),
    },
  ])
}

const exactly = (deals: number, amount: string) => `${countOf(deals, 'deal')}, ${dollars(amount)}`

function renderPositions({days, positions}: PortfolioReport): Html | false {
  if (days.length < 2) return false
  return html`<h2>Position over time</h2>
<p class="muted small">Open amount at the end of each business date, by status.</p>
${renderChart({title: 'Open amount by day and status', shape: 'area', unit: 'usd', places: days, series: positions})}`
}

/** A row's value of a column that a release may lack. */
const cellOf = (column: string) => (row: Cells) => row[column] ?? null
/** The page of what a cell is made of. */
type LinkOf = (row: Cells, column: string) => string | undefined
const money = (title: string, column: string, linkOf?: LinkOf): Column<Cells> => ({
  title,
  kind: 'number',
  cell: (row) => {
    const value = cellOf(column)(row)
    return linked(dollars(value), Number(value) === 0 ? undefined : linkOf?.(row, column))
  },
})
const share = (title: string, column: string, linkOf?: LinkOf): Column<Cells> => ({
  title,
  kind: 'number',
  cell: (row) => {
    const value = cellOf(column)(row)
    return linked(percent(value === null ? null : Number(value)), linkOf?.(row, column))
  },
})

/** The terms of a roll-forward, which stand between opening and closing. */
const ADDED = ['found', 'originated', 'refunded', 'restored', 'increased']
const TAKEN = [
  ...['decreased', 'reversed', 'vanished'],
  ...['paid_off', 'sold', 'refinanced', 'foreclosed', 'charged_off', 'ended_other'],
]

/** In this order they are shown. */
export const TERMS: readonly string[] = ['opening', ...ADDED, ...TAKEN]

function renderRollforward({rollforward: rows, links}: PortfolioReport): Html | false {
  const behind: LinkOf = ({month}, term) =>
    term === 'opening' || term === 'closing'
      ? links?.behind(term, {month: month ?? ''})
      : links?.behind('term', {month: month ?? '', term})
  if (rows === null || rows.length === 0) return false
  const isUsed = (term: string) => rows.some((row) => Number(row[term] ?? 0) !== 0)
  if (![...TERMS, 'closing'].some(isUsed))
    return html`<h2>Funded roll-forward</h2><p class="empty">Nothing has been funded yet.</p>`
  const [added, taken] = [ADDED.filter(isUsed), TAKEN.filter(isUsed)]
  const columns: Column<Cells>[] = [
    {title: 'Month', cell: (row) => words(row.month)},
    money('Opening', 'opening', behind),
    ...[...added, ...taken].map((term) =>
      money(
        words(term).replace(/^./, (letter) => letter.toUpperCase()),
        term,
        behind,
      ),
    ),
    money('Closing', 'closing', behind),
  ]
  return html`<h2>Funded roll-forward</h2>
<p class="muted small">Closing = ${['opening', ...added].map(words).join(' + ')}${taken.map((term) => ` − ${words(term)}`)}; terms that never occurred are left out.</p>
<p class="muted small">What moved it in ${rows.at(-1)?.month}; the axis does not begin at zero.</p>
${renderFall(rows.at(-1) ?? {})}
${table(columns, rows.slice(-12))}`
}

/** How the book came from the opening of a month to its closing. */
function renderFall(row: Cells): Html {
  const amountOf = (term: string) => Number(row[term] ?? 0) * (TAKEN.includes(term) ? -1 : 1)
  const moved = [...ADDED, ...TAKEN].filter((term) => amountOf(term) !== 0)
  return renderChart({
    title: `What moved the funded book in ${row.month}`,
    shape: 'waterfall',
    unit: 'usd',
    places: [
      'opening',
      ...moved.map((term) => `${TAKEN.includes(term) ? '−' : '+'} ${words(term)}`),
      'closing',
    ],
    series: [{name: 'Amount', values: ['opening', ...moved, 'closing'].map(amountOf)}],
  })
}

function renderConcentration({concentration: rows, exposures, links}: PortfolioReport): Html | false {
  if (rows === null || rows.every(({funded_hhi}) => funded_hhi === null)) return false
  const deals = (exposures ?? []).filter(({dimension}) => dimension !== 'borrower')
  const largest =
    (top: string): LinkOf =>
    ({dimension}) =>
      links?.behind(`largest_${dimension}`, {top})
  const columns: Column<Cells>[] = [
    {title: 'Dimension', cell: (row) => words(row.dimension)},
    share('Largest', 'funded_top_1_pct', largest('1')),
    share('Largest 5', 'funded_top_5_pct', largest('5')),
    share('Largest 10', 'funded_top_10_pct', largest('10')),
    {title: 'HHI', kind: 'number', cell: (row) => hhi(row.funded_hhi)},
  ]
  return html`<h2>Concentration</h2>
<p class="muted small">Share of the funded amount in the largest buckets; the Herfindahl-Hirschman index runs from 0 (spread) to 10,000 (all in one).</p>
${table(columns, rows)}
${deals.length > 0 && html`<h3>Largest funded deals</h3>${table(listExposureColumns(links), deals.slice(0, 10))}`}`
}

const hhi = (value: string | null | undefined) =>
  value === null || value === undefined ? '–' : count(Math.round(Number(value)))

const listExposureColumns = (links: PortfolioReport['links']): Column<Cells>[] => [
  {title: 'Deal', cell: (row) => linked(html`<code>${row.deal_id}</code>`, links?.deal(row.deal_id ?? ''))},
  money('Amount', 'loan_amount'),
  share('Share', 'share_pct'),
  {title: 'Property', cell: (row) => row.property_address ?? '–'},
  {title: 'Program', cell: (row) => words(row.loan_program).replaceAll(' ', '\u00a0')},
]

/** How far the figures can be trusted. */
export function renderQuality(quality: PortfolioReport['quality'], findings: readonly Html[]): Html {
  return html`<h2>Data quality</h2>
${
  findings.length > 0 &&
  html`<div class="notice">${findings.map((finding) => html`<p>${finding}.</p>`)}</div>`
}
<div class="narrow">${table(
    [
      {title: 'Measure', cell: ({measure}) => words(measure)},
      {title: 'Percent', kind: 'number', cell: ({value}) => percent(value, 2)},
      {title: 'Deals or records', kind: 'number', cell: ({deals}) => count(deals)},
    ],
    quality,
  )}</div>
<p class="muted small">For coverage, the deals or records are those without; what each measure is taken of stands in the data dictionary (<code>loantape docs</code>).</p>`
}
