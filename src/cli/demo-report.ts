import {relative} from 'node:path'
import {z} from 'zod'
import {formatCents, groupThousands} from '../money.ts'
import type {EventsResult} from '../pipeline/events.ts'
import type {SyncResult} from '../pipeline.ts'
import type {Release} from '../release/manifest.ts'
import {openRelease} from '../release/query.ts'
import type {ChangeCounts} from '../types.ts'
import {renderTable} from './table.ts'

/** What the demo showed; `demo --json` prints it. */
export interface DemoResult {
  /** `webhooks`: what came between the night before and this one. */
  days: {
    day: string
    release_id: string | null
    changes: ChangeCounts
    webhooks: EventsResult | null
  }[]
  summary: Summary
  previous: Summary | null
  by_status: Share[]
  by_program: Share[]
  release_dir: string
  export_dirs: string[]
}

interface Summary {
  deals: number
  amount: string
  funded_deals: number
  funded_amount: string
  wa_ltv: number | null
}

const summaryRow: z.ZodType<Summary> = z.object({
  deals: z.coerce.number(),
  amount: z.string(),
  funded_deals: z.coerce.number(),
  funded_amount: z.string(),
  wa_ltv: z.number().nullable(),
})

interface Share {
  bucket: string
  deals: number
  amount: string
  share_pct: number
}

const shareRow: z.ZodType<Share> = z.object({
  bucket: z.string(),
  deals: z.coerce.number(),
  amount: z.string(),
  share_pct: z.number(),
})

/** Totals and shares of a release. */
export async function readPortfolio(
  release: Release,
): Promise<Pick<DemoResult, 'summary' | 'by_status' | 'by_program'>> {
  await using db = await openRelease(release)
  const readShares = (dimension: string) =>
    db.all(
      shareRow,
      `select bucket, deals, amount, share_pct from mart.portfolio_breakdown
       where dimension = $1 order by sort_order, bucket`,
      [dimension],
    )
  return {
    summary: await db.one(summaryRow, 'from mart.portfolio_summary'),
    by_status: await readShares('status'),
    by_program: await readShares('loan_program'),
  }
}

/** One line for what webhooks brought between two nights. */
export function renderDay(day: string, {events, deals, appended}: EventsResult): string {
  return `Day of ${day}: ${events} events received by webhook, ${deals} deals read again, ${appended} of them changed.`
}

/** One line for what a night's sync saw. */
export function renderNight(day: string, sync: SyncResult, durationMs: number): string {
  const {created, updated, missing, vanished} = sync.changes
  const changes = `${created} new, ${updated} changed, ${missing} missing, ${vanished} vanished`
  const lists = sync.streams.map(({stream, changes}) => `, ${changes.created} new ${stream}`).join('')
  return `Night of ${day}: ${sync.walk.pages} pages, ${sync.walk.distinct} deals (${changes})${lists}, ${sync.checks.passed} checks passed, ${(durationMs / 1000).toFixed(1)} s.`
}

/**
 * What stands below the last night: the portfolio, where the files are, and what to try next.
 *
 * @param dataDir as `--data` named it
 */
export function renderDemo(result: DemoResult, dataDir: string): string {
  const {summary, previous} = result
  const quoted = /^[\w./-]+$/.test(dataDir) ? dataDir : `'${dataDir.replaceAll("'", "'\\''")}'`
  const query = `npx loantape query --data ${quoted}`
  const lines = [
    '',
    `Portfolio: ${summary.deals} deals, ${dollars(summary.amount)}; funded ${summary.funded_deals} deals, ${dollars(summary.funded_amount)}; loan-to-value ${percent((summary.wa_ltv ?? 0) * 100)}.`,
    '',
    renderShares('status', result.by_status),
    '',
    renderShares('loan program', result.by_program),
  ]
  const last = result.days.at(-1)
  if (previous && last) {
    lines.push(
      '',
      `Since the day before: deals ${signed(summary.deals - previous.deals)}, amount ${signed(difference(summary.amount, previous.amount))}, funded ${signed(difference(summary.funded_amount, previous.funded_amount))};`,
      `  ${last.changes.created} new, ${last.changes.updated} changed, ${last.changes.missing} missing, ${last.changes.vanished} vanished, ${last.changes.unchanged} unchanged.`,
    )
  }
  lines.push(
    '',
    `Release:  ${shorten(result.release_dir)}/portfolio.duckdb, and each table as Parquet beside it`,
    ...result.export_dirs.map((dir) => `Exported: ${shorten(dir)}`),
    '',
    'Two things to try next:',
    `  ${query} "select * from mart.portfolio_breakdown where dimension = 'state' order by amount desc limit 10"`,
    `  ${query} "select deal_id, loan_amount from mart.document_coverage where status = 'underwriting' and not has_appraisal"`,
  )
  return lines.join('\n')
}

function renderShares(title: string, shares: readonly Share[]): string {
  return renderTable(
    [
      {title},
      {title: 'deals', isNumber: true},
      {title: 'amount', isNumber: true},
      {title: 'share', isNumber: true},
    ],
    shares.map(({bucket, deals, amount, share_pct}) => [
      bucket,
      String(deals),
      dollars(amount),
      percent(share_pct),
    ]),
  )
}

const dollars = (amount: string) => `$${groupThousands(amount)}`
const percent = (value: number) => `${value.toFixed(1)} %`

/** Exact difference of two decimal texts with two places, in cents and back. */
function difference(left: string, right: string): string {
  const cents = (text: string) => BigInt(text.replace('.', ''))
  return formatCents(cents(left) - cents(right))
}

function signed(value: number | string): string {
  const text = groupThousands(String(value))
  return text.startsWith('-') ? text : `+${text}`
}

/** A path as it is shorter to type. */
function shorten(path: string): string {
  const local = relative('.', path)
  return local.startsWith('..') ? path : local
}
