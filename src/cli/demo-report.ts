import {relative} from 'node:path'
import {centsOf, formatCents, quantity} from '../money.ts'
import {dollars, percent, ratio} from '../page/figures.ts'
import type {EventsResult} from '../pipeline/events.ts'
import type {SyncResult} from '../pipeline.ts'
import type {Release} from '../release/manifest.ts'
import {openRelease} from '../release/open-release.ts'
import {type RowOf, rowOf} from '../release-row.ts'
import type {ChangeCounts} from '../types.ts'
import {renderTable, signed} from './table.ts'

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

type Summary = RowOf<typeof shownSummary>
const shownSummary = rowOf('mart.portfolio_summary', [
  'deals',
  'amount',
  'open_deals',
  'open_amount',
  'open_wa_ltv',
  'ended_deals',
  'ended_amount',
  'funded_deals',
  'funded_amount',
  'funded_wa_ltv',
])

type Share = RowOf<typeof shareRow>
const shareRow = rowOf('mart.portfolio_breakdown', [
  'bucket',
  'deals',
  'amount',
  'share_pct',
  'open_deals',
  'open_amount',
  'funded_amount',
  'funded_share_pct',
])

/** Totals and shares of a release. */
export async function readPortfolio(
  release: Release,
): Promise<Pick<DemoResult, 'summary' | 'by_status' | 'by_program'>> {
  await using db = await openRelease(release)
  const readShares = (dimension: string) =>
    db.all(shareRow, `from mart.portfolio_breakdown where dimension = $1 order by sort_order, bucket`, [
      dimension,
    ])
  return {
    summary: await db.one(shownSummary, 'from mart.portfolio_summary'),
    by_status: await readShares('status'),
    by_program: await readShares('loan_program'),
  }
}

/** One line for what webhooks brought between two nights. */
export function renderDay(day: string, {events, deals, appended}: EventsResult): string {
  return `Day of ${day}: ${quantity(events, 'event')} received by webhook, ${quantity(deals, 'deal')} read again, ${appended} of them changed.`
}

/** One line for what a night's sync saw. */
export function renderNight(day: string, sync: SyncResult, durationMs: number): string {
  const {created, updated, missing, vanished} = sync.changes
  const changes = `${created} new, ${updated} changed, ${missing} missing, ${vanished} vanished`
  const lists = sync.streams
    .map(({stream, changes}) => `, ${quantity(changes.created, `new ${stream.replace(/s$/, '')}`)}`)
    .join('')
  return `Night of ${day}: ${quantity(sync.walk.pages, 'page')}, ${quantity(sync.walk.distinct, 'deal')} (${changes})${lists}, ${quantity(sync.checks.passed, 'check')} passed, ${(durationMs / 1000).toFixed(1)} s.`
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
    renderTotal('Open:', summary.open_deals, summary.open_amount, summary.open_wa_ltv),
    renderTotal('Funded:', summary.funded_deals, summary.funded_amount, summary.funded_wa_ltv),
    renderTotal('Ended:', summary.ended_deals, summary.ended_amount),
    '',
    renderStatuses(result.by_status),
    '',
    renderPrograms(result.by_program),
  ]
  const last = result.days.at(-1)
  if (previous && last) {
    lines.push(
      '',
      `Since the day before: open deals ${signed(summary.open_deals - previous.open_deals)}, open amount ${signed(difference(summary.open_amount, previous.open_amount))}, funded ${signed(difference(summary.funded_amount, previous.funded_amount))};`,
      `  ${last.changes.created} new, ${last.changes.updated} changed, ${last.changes.missing} missing, ${last.changes.vanished} vanished, ${last.changes.unchanged} unchanged.`,
    )
  }
  lines.push(
    '',
    `Release:  ${shorten(result.release_dir)}/portfolio.duckdb, and each table as Parquet beside it`,
    ...result.export_dirs.map((dir) => `Exported: ${shorten(dir)}`),
    '',
    'Three things to try next:',
    `  ${query} "select bucket, open_deals, open_amount, funded_amount from mart.portfolio_breakdown where dimension = 'state' order by open_amount desc limit 10"`,
    `  ${query} "select deal_id, loan_amount from mart.document_coverage where status = 'underwriting' and not has_appraisal"`,
    `  npx loantape serve --data ${quoted}    which shows it all at http://127.0.0.1:8321`,
  )
  return lines.join('\n')
}

/** One line of the portfolio's totals, led by what it is the total of. */
function renderTotal(title: string, deals: number, amount: string, ltv: number | null = null): string {
  const share = ltv === null ? '' : `; loan-to-value ${ratio(ltv)}`
  return `${title.padEnd(8)}${quantity(deals, 'deal')}, ${dollars(amount)}${share}.`
}

/** All deals; a status is wholly open or wholly ended. */
function renderStatuses(shares: readonly Share[]): string {
  return renderTable(
    ['status', {number: 'deals'}, {number: 'amount'}, {number: 'share'}],
    shares.map(({bucket, deals, amount, share_pct}) => [
      bucket,
      String(deals),
      dollars(amount),
      percent(share_pct),
    ]),
  )
}

function renderPrograms(shares: readonly Share[]): string {
  return renderTable(
    [
      'loan program',
      {number: 'open deals'},
      {number: 'open amount'},
      {number: 'funded amount'},
      {number: 'of funded'},
    ],
    shares.map(({bucket, open_deals, open_amount, funded_amount, funded_share_pct}) => [
      bucket,
      String(open_deals),
      dollars(open_amount),
      dollars(funded_amount),
      percent(funded_share_pct),
    ]),
  )
}

/** Exact difference of two amounts. */
function difference(left: string, right: string): string {
  return formatCents(centsOf(left) - centsOf(right))
}

/** A path as it is shorter to type. */
function shorten(path: string): string {
  const local = relative('.', path)
  return local.startsWith('..') ? path : local
}
