import {z} from 'zod'
import {centsOf, formatCents} from '../money.ts'
import {bar, type Column, count, dollars, linked, percent, ratio, table, words} from './figures.ts'
import {type Html, html} from './html.ts'

const wholeNumber = z.coerce.number()

/** `mart.portfolio_summary`; amounts are decimal text. */
export type Summary = z.output<typeof summaryRow>
export const summaryRow = z.object({
  deals: wholeNumber,
  amount: z.string(),
  open_deals: wholeNumber,
  open_amount: z.string(),
  open_wa_ltv: z.number().nullable(),
  ended_deals: wholeNumber,
  ended_amount: z.string(),
  pipeline_deals: wholeNumber,
  pipeline_amount: z.string(),
  funded_deals: wholeNumber,
  funded_amount: z.string(),
  funded_wa_ltv: z.number().nullable(),
  wa_ltv: z.number().nullable(),
  ltv_coverage_pct: z.number().nullable(),
})

/** A row of `mart.portfolio_breakdown`. */
export type Bucket = z.output<typeof bucketRow>
export const bucketRow = z.object({
  dimension: z.string(),
  bucket: z.string(),
  deals: wholeNumber,
  amount: z.string(),
  share_pct: z.number().nullable(),
  open_deals: wholeNumber,
  open_amount: z.string(),
  funded_amount: z.string(),
  funded_share_pct: z.number().nullable(),
  wa_ltv: z.number().nullable(),
})

/** What breakdowns are made from. */
export interface Portfolio {
  summary: Summary
  buckets: readonly Bucket[]
  /** The page of the deals of a bucket, or of a class of statuses. */
  linkOf?: ((dimension: string, bucket: string) => string | undefined) | undefined
}

/** Buckets a breakdown shows by itself; the rest is one row. */
const SHOWN = 15

/** All deals, the ended ones among them: a status is wholly the one or the other. */
export function renderStatuses({buckets, summary, linkOf}: Portfolio): Html {
  const rows = buckets.filter(({dimension}) => dimension === 'status')
  const total: Bucket = {...summary, ...ALL, share_pct: Number(summary.amount) === 0 ? null : 100}
  const columns: Column<Bucket>[] = [
    {title: 'Status', cell: nameOf(linkOf)},
    barOf(rows, ({share_pct}) => share_pct),
    {title: 'Share', kind: 'number', cell: ({share_pct}) => percent(share_pct)},
    {title: 'Amount', kind: 'number', cell: ({amount}) => dollars(amount)},
    {title: 'Deals', kind: 'number', cell: ({deals}) => count(deals)},
    {title: 'WA LTV', kind: 'number', cell: ({wa_ltv}) => ratio(wa_ltv)},
  ]
  return html`<div class="breakdown">${table(columns, rows, total)}</div>`
}

/** The name of a bucket; totals and the rest have no page. */
const nameOf = (linkOf: Portfolio['linkOf']) => (row: Bucket) =>
  linked(words(row.bucket), row.dimension === '' ? undefined : linkOf?.(row.dimension, row.bucket))

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

/** Dimensions whose buckets have no order of their own. */
const BY_AMOUNT = ['loan_program', 'state']

/** The buckets that hold open deals. */
export function renderBreakdown(portfolio: Portfolio, dimension: string, title: string): Html {
  const {buckets, summary, linkOf} = portfolio
  const rows = buckets.filter((bucket) => bucket.dimension === dimension && bucket.open_deals > 0)
  const ordered = BY_AMOUNT.includes(dimension) ? rows.toSorted(byAmount) : rows
  const rest = ordered.slice(SHOWN)
  const shown = rest.length === 0 ? ordered : [...ordered.slice(0, SHOWN), addUp(rest)]
  const openAmount = Number(summary.open_amount)
  const shareOf = ({open_amount}: Bucket) =>
    openAmount === 0 ? null : (Number(open_amount) / openAmount) * 100
  const total: Bucket = {
    ...summary,
    ...ALL,
    share_pct: null,
    funded_share_pct: Number(summary.funded_amount) === 0 ? null : 100,
  }
  const columns: Column<Bucket>[] = [
    {title, cell: nameOf(linkOf)},
    barOf(shown, shareOf),
    {title: 'Share', kind: 'number', cell: (row) => percent(shareOf(row))},
    {title: 'Open amount', kind: 'number', cell: ({open_amount}) => dollars(open_amount)},
    {title: 'Deals', kind: 'number', cell: ({open_deals}) => count(open_deals)},
    {title: 'Funded', kind: 'number', cell: ({funded_amount}) => dollars(funded_amount)},
    {title: 'Share of funded', kind: 'number', cell: ({funded_share_pct}) => percent(funded_share_pct)},
  ]
  return html`<div class="breakdown">${table(columns, shown, total)}</div>`
}

const byAmount = (a: Bucket, b: Bucket) => Number(b.open_amount) - Number(a.open_amount)

/** Several buckets as one; amounts are added in cents. */
function addUp(buckets: readonly Bucket[]): Bucket {
  const amountOf = (column: 'amount' | 'open_amount' | 'funded_amount') =>
    formatCents(buckets.reduce((sum, bucket) => sum + centsOf(bucket[column]), 0n))
  return {
    dimension: '',
    bucket: `${buckets.length} others`,
    deals: buckets.reduce((sum, {deals}) => sum + deals, 0),
    amount: amountOf('amount'),
    share_pct: null,
    open_deals: buckets.reduce((sum, {open_deals}) => sum + open_deals, 0),
    open_amount: amountOf('open_amount'),
    funded_amount: amountOf('funded_amount'),
    funded_share_pct: buckets.reduce((sum, {funded_share_pct}) => sum + (funded_share_pct ?? 0), 0),
    wa_ltv: null,
  }
}
