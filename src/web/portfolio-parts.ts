import {anyRow, type ReleaseQueries, type RowOf, rowOf} from '../build/release-row.ts'
import {centsOf, formatCents} from '../core/money.ts'
import type {ReleaseManifest} from '../store/release.ts'
import {renderChart, type Series} from './chart.ts'
import {
  bar,
  type Column,
  capitalised,
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

const positionRow = rowOf('mart.position_daily', ['day', 'status'], {amount: 'number?'})
const qualityRow = rowOf('mart.data_quality', ['value', 'deals'], {measure: 'text?'})

/** Reads the portfolio report of the deals in these tables. */
export async function readPortfolio(
  tables: ReleaseQueries,
  manifest: ReleaseManifest,
): Promise<PortfolioReport> {
  const readIfThere = async (table: string, order: string) =>
    manifest.tables.some(({name}) => name === table)
      ? (await tables.all(anyRow, `from ${table} order by ${order}`)).map(asTexts)
      : null
  return {
    ...manifest,
    summary: await tables.one(summaryRow, 'from mart.portfolio_summary'),
    buckets: await tables.all(
      bucketRow,
      'from mart.portfolio_breakdown order by dimension, sort_order, bucket',
    ),
    ...(await readPositions(tables)),
    quality: await tables.all(
      qualityRow,
      `select concat_ws(' ', nullif(scope, 'deals'), metric, field, found) as measure, value, deals
       from mart.data_quality order by all`,
    ),
    rollforward: await readIfThere('mart.funded_rollforward', 'month'),
    concentration: await readIfThere('mart.concentration', 'dimension'),
    exposures: await readIfThere('mart.top_exposure', 'rank'),
  }
}

const asTexts = (row: RowOf<typeof anyRow>): Cells =>
  Object.fromEntries(
    Object.entries(row).map(([name, value]) => [name, value === null ? null : String(value)]),
  )

/** The amount of each open status on each day, in the order of `seed.status`; statuses never held are left out. */
async function readPositions(db: ReleaseQueries): Promise<{days: string[]; positions: Series[]}> {
  const rows = await db.all(
    positionRow,
    `select position.day, position.status, cast(position.amount as double) as amount
     from mart.position_daily as position
     left join seed.status on status.status = position.status
     where not starts_with(coalesce(status.class, 'unclassified'), 'ended')
     order by position.day, status.sort_order desc nulls last, position.status`,
  )
  const days = [...new Set(rows.map(({day}) => day))]
  const byStatus = Map.groupBy(rows, ({status}) => status)
  const positions = [...byStatus]
    .map(([name, entries]) => ({name, values: entries.map(({amount}) => amount)}))
    .filter(({values}) => values.some((value) => value !== 0))
  return {days, positions}
}

/** `mart.portfolio_summary`; amounts are decimal text. */
type Summary = RowOf<typeof summaryRow>
export const summaryRow = rowOf('mart.portfolio_summary', [
  'deals',
  'amount',
  'open_deals',
  'open_amount',
  'open_wa_ltv',
  'ended_deals',
  'ended_amount',
  'pipeline_deals',
  'pipeline_amount',
  'funded_deals',
  'funded_amount',
  'funded_wa_ltv',
  'open_ltv_coverage_pct',
])

/** A row of `mart.portfolio_breakdown`. */
type Bucket = RowOf<typeof bucketRow>
const bucketRow = rowOf('mart.portfolio_breakdown', [
  'dimension',
  'bucket',
  'deals',
  'amount',
  'share_pct',
  'open_deals',
  'open_amount',
  'funded_deals',
  'funded_amount',
  'funded_share_pct',
  'open_wa_ltv',
])

/** The pages that numbers lead to. */
interface Links {
  /** The portfolio of a bucket. */
  bucket(dimension: string, bucket: string): string | undefined
  /** The deals of a part of the portfolio (all by default), or of one bucket of it. */
  deals(part: string | undefined, dimension?: string, bucket?: string): string | undefined
  /** The deals behind another number, as `behind.ts` names it. */
  behind(number: string, asked?: Readonly<Record<string, string>>): string
  deal(dealId: string): string
}

/** What breakdowns are made from. */
interface Portfolio {
  summary: Summary
  buckets: readonly Bucket[]
  /** Undefined in a page that is a file of its own. */
  links?: Links | undefined
}

/** How many buckets a breakdown shows; the rest is one row. */
const SHOWN = 15

/** All deals, ended ones included: a status is either open or ended. */
function renderStatuses({buckets, summary, links}: Portfolio): Html {
  const rows = buckets.filter(({dimension}) => dimension === 'status')
  const total: Bucket = {...summary, ...ALL, share_pct: Number(summary.amount) === 0 ? null : 100}
  const dealsOf = (row: Bucket) =>
    row === total ? links?.deals(undefined) : links?.deals(undefined, 'status', row.bucket)
  const columns: Column<Bucket>[] = [
    {title: 'Status', cell: nameOf(links)},
    barOf(rows, ({share_pct}) => share_pct),
    {title: 'Share', kind: 'number', cell: ({share_pct}) => percent(share_pct)},
    {title: 'Amount', kind: 'number', cell: ({amount}) => dollars(amount)},
    {title: 'Deals', kind: 'number', cell: (row) => linked(count(row.deals), dealsOf(row))},
    {title: 'WA LTV, open', kind: 'number', cell: ({open_wa_ltv}) => ratio(open_wa_ltv)},
  ]
  return html`<div class="breakdown">${table(columns, rows, total)}</div>`
}

/** The name of a bucket; totals and the rest have no page. */
const nameOf = (links: Portfolio['links']) => (row: Bucket) =>
  linked(words(row.bucket), row.dimension === '' ? undefined : links?.bucket(row.dimension, row.bucket))

/** What a row of totals has for its bucket's own columns. */
const ALL = {dimension: '', bucket: 'All', funded_share_pct: null}

/** A bar for each row, the longest for the largest share; none for the total. */
function barOf(rows: readonly Bucket[], shareOf: (row: Bucket) => number | null): Column<Bucket> {
  const longest = Math.max(...rows.map((row) => shareOf(row) ?? 0), 1)
  return {
    title: '',
    kind: 'bar',
    cell: (row) => row.bucket !== ALL.bucket && bar(((shareOf(row) ?? 0) / longest) * 100),
  }
}

/** Dimensions without an order: the largest buckets are shown, the others are one row with this page behind it. */
const BY_AMOUNT: Record<string, string> = {loan_program: 'other_programs', state: 'other_states'}

/** The buckets that hold open deals. */
function renderBreakdown(portfolio: Portfolio, dimension: string, title: string): Html {
  const {buckets, summary, links} = portfolio
  const rows = buckets.filter((bucket) => bucket.dimension === dimension && bucket.open_deals > 0)
  const ordered = dimension in BY_AMOUNT ? rows.toSorted(byAmount) : rows
  const rest = ordered.slice(SHOWN)
  const others = rest.length === 0 ? undefined : addUp(rest)
  const shown = others ? [...ordered.slice(0, SHOWN), others] : ordered
  const openAmount = Number(summary.open_amount)
  const shareOf = ({open_amount}: Bucket) =>
    openAmount === 0 ? null : (Number(open_amount) / openAmount) * 100
  const total: Bucket = {
    ...summary,
    ...ALL,
    share_pct: null,
    funded_share_pct: Number(summary.funded_amount) === 0 ? null : 100,
  }
  const dealsOf = (row: Bucket, part: 'open' | 'funded') => {
    if (row[`${part}_deals`] === 0) return undefined
    if (row === total) return links?.deals(part)
    if (row !== others) return links?.deals(part, dimension, row.bucket)
    return part === 'open' ? links?.behind(BY_AMOUNT[dimension] ?? '', {beyond: String(SHOWN)}) : undefined
  }
  const columns: Column<Bucket>[] = [
    {title, cell: nameOf(links)},
    barOf(shown, shareOf),
    {title: 'Share', kind: 'number', cell: (row) => percent(shareOf(row))},
    {title: 'Open amount', kind: 'number', cell: ({open_amount}) => dollars(open_amount)},
    {title: 'Deals', kind: 'number', cell: (row) => linked(count(row.open_deals), dealsOf(row, 'open'))},
    {
      title: 'Funded',
      kind: 'number',
      cell: (row) => linked(dollars(row.funded_amount), dealsOf(row, 'funded')),
    },
    {title: 'Share of funded', kind: 'number', cell: ({funded_share_pct}) => percent(funded_share_pct)},
  ]
  return html`<div class="breakdown">${table(columns, shown, total)}</div>`
}

/** Sorts buckets by amount, then by name, as `behind.ts` does for the others. */
function byAmount(a: Bucket, b: Bucket): number {
  const difference = centsOf(b.open_amount) - centsOf(a.open_amount)
  return difference === 0n ? (a.bucket < b.bucket ? -1 : 1) : difference > 0n ? 1 : -1
}

/** Several buckets as one; amounts are added in cents. */
function addUp(buckets: readonly Bucket[]): Bucket {
  const amountOf = (column: 'amount' | 'open_amount' | 'funded_amount') =>
    formatCents(buckets.reduce((sum, bucket) => sum + centsOf(bucket[column]), 0n))
  return {
    dimension: '',
    bucket: countOf(buckets.length, 'other'),
    deals: buckets.reduce((sum, {deals}) => sum + deals, 0),
    amount: amountOf('amount'),
    share_pct: null,
    open_deals: buckets.reduce((sum, {open_deals}) => sum + open_deals, 0),
    open_amount: amountOf('open_amount'),
    funded_deals: buckets.reduce((sum, {funded_deals}) => sum + funded_deals, 0),
    funded_amount: amountOf('funded_amount'),
    funded_share_pct: buckets.reduce((sum, {funded_share_pct}) => sum + (funded_share_pct ?? 0), 0),
    open_wa_ltv: null,
  }
}

/** A row of a table that a release may lack: values as text, by column. */
type Cells = Record<string, string | null>

/** The content of the portfolio report. */
interface PortfolioReport extends Portfolio, ReleaseManifest {
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
  const figureOf = (part: 'open' | 'funded' | 'pipeline' | 'ended') => ({
    name: capitalised(part),
    value: dollarsAtAGlance(summary[`${part}_amount`]),
    note: `${countOf(summary[`${part}_deals`], 'deal')}, ${dollars(summary[`${part}_amount`])}`,
    href: summary[`${part}_deals`] === 0 ? undefined : links?.deals(part),
  })
  const ended = figureOf('ended')
  return figures([
    figureOf('open'),
    figureOf('funded'),
    figureOf('pipeline'),
    {
      name: 'Weighted loan-to-value',
      value: ratio(summary.open_wa_ltv),
      note: `of what is open; funded ${ratio(summary.funded_wa_ltv)}. Taken of ${percent(summary.open_ltv_coverage_pct)} of the open amount`,
    },
    {...ended, note: `${ended.note}: with the open ones all that the source lists`},
  ])
}

function renderPositions({days, positions}: PortfolioReport): Html | false {
  if (days.length < 2) return false
  return html`<h2>Position over time</h2>
<p class="muted small">Open amount at the end of each business date, by status.</p>
${renderChart({title: 'Open amount by day and status', shape: 'area', unit: 'usd', places: days, series: positions})}`
}

/** A row's value of a column that a release may lack. */
const cellOf = (column: string) => (row: Cells) => row[column] ?? null
/** The page behind a cell. */
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

/** The order in which they are shown. */
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
    ...[...added, ...taken].map((term) => money(capitalised(words(term)), term, behind)),
    money('Closing', 'closing', behind),
  ]
  return html`<h2>Funded roll-forward</h2>
<p class="muted small">Closing = ${['opening', ...added].map(words).join(' + ')}${taken.map((term) => ` − ${words(term)}`)}; terms that never occurred are left out.</p>
${renderFall(rows.at(-1) ?? {})}
${table(columns, rows.slice(-12))}`
}

/** How the book came from the opening of a month to its closing. */
function renderFall(row: Cells): Html {
  const amountOf = (term: string) => Number(row[term] ?? 0) * (TAKEN.includes(term) ? -1 : 1)
  const moved = [...ADDED, ...TAKEN].filter((term) => amountOf(term) !== 0)
  if (moved.length === 0) return html`<p class="muted small">Nothing moved it in ${row.month}.</p>`
  const chart = renderChart({
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
  return html`<p class="muted small">What moved it in ${row.month}; the axis does not begin at zero.</p>
${chart}`
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
