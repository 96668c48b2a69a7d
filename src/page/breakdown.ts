import {centsOf, formatCents} from '../money.ts'
import {type RowOf, rowOf} from '../release-row.ts'
import {bar, type Column, count, countOf, dollars, linked, percent, ratio, table, words} from './figures.ts'
import {type Html, html} from './html.ts'

/** `mart.portfolio_summary`; amounts are decimal text. */
export type Summary = RowOf<typeof summaryRow>
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
export type Bucket = RowOf<typeof bucketRow>
export const bucketRow = rowOf('mart.portfolio_breakdown', [
  'dimension',
  'bucket',
  'deals',
  'amount',
  'share_pct',
  'open_deals',
  'open_amount',
  'funded_amount',
  'funded_share_pct',
  'open_wa_ltv',
])

/** The pages that numbers lead to. */
export interface Links {
  /** The portfolio of a bucket. */
  bucket(dimension: string, bucket: string): string | undefined
  /** The deals of a part of the portfolio, all of it where it is undefined, of a bucket where one is given. */
  deals(part: string | undefined, dimension?: string, bucket?: string): string | undefined
  /** The deals behind another number, as `behind.ts` names it. */
  behind(number: string, asked?: Readonly<Record<string, string>>): string
  deal(dealId: string): string
}

/** What breakdowns are made from. */
export interface Portfolio {
  summary: Summary
  buckets: readonly Bucket[]
  /** None where the page is a file of its own. */
  links?: Links | undefined
}

/** Buckets a breakdown shows by itself; the rest is one row. */
const SHOWN = 15

/** All deals, the ended ones among them: a status is wholly the one or the other. */
export function renderStatuses({buckets, summary, links}: Portfolio): Html {
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

/** Dimensions whose buckets have no order of their own: the largest stand by themselves, and what is behind the others. */
const BY_AMOUNT: Record<string, string> = {loan_program: 'other_programs', state: 'other_states'}

/** The buckets that hold open deals. */
export function renderBreakdown(portfolio: Portfolio, dimension: string, title: string): Html {
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
  const dealsOf = (row: Bucket, part: string) => {
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

/** As the deals behind the others are told: by amount, exactly, then by name. */
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
    funded_amount: amountOf('funded_amount'),
    funded_share_pct: buckets.reduce((sum, {funded_share_pct}) => sum + (funded_share_pct ?? 0), 0),
    open_wa_ltv: null,
  }
}
