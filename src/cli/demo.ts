import {existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {relative} from 'node:path'
import type {Command} from 'commander'
import {z} from 'zod'
import {addDays, businessDateOf, createFrozenClock} from '../clock.ts'
import type {Config} from '../config.ts'
import {STREAMS} from '../contract/streams.ts'
import {ConfigError, codeOf, LockedError} from '../errors.ts'
import {formatCents, groupThousands} from '../money.ts'
import {isProcessAlive} from '../process.ts'
import {type Release, requireRelease} from '../release/manifest.ts'
import {openRelease} from '../release/query.ts'
import {requireJob} from '../schedule/job.ts'
import {type JobResult, runJob} from '../schedule/run-job.ts'
import {advanceDay} from '../service/advance-day.ts'
import {linkPortfolio} from '../service/linked-portfolio.ts'
import {seedPortfolio} from '../service/portfolio.ts'
import type {ChangeCounts, World} from '../types.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../warehouse/data-folder.ts'
import type {Cli, CommonOptions} from './context.ts'
import {parseCount} from './service.ts'
import {renderTable} from './table.ts'

const DAY_MS = 86_400_000

interface DemoOptions extends CommonOptions {
  deals: number
  days: number
  seed: string
}

/** What the demo showed; `demo --json` prints it. */
interface DemoResult {
  days: {day: string; release_id: string | null; changes: ChangeCounts}[]
  summary: Summary
  previous: Summary | null
  by_status: Share[]
  by_program: Share[]
  release_dir: string
  export_dirs: string[]
}

/** `loantape demo`. */
export function addDemo(program: Command, cli: Cli): void {
  program
    .command('demo')
    .description('everything on a local service with a synthetic portfolio; needs nothing else')
    .option('--deals <count>', 'deals to begin with', parseCount('--deals', 1_000_000), 2500)
    .option('--days <count>', 'nights to simulate', parseCount('--days', 366), 3)
    .option('--seed <seed>', 'the same seed gives the same portfolio', '7')
    .action(async (_options, command: Command) => {
      const options = command.optsWithGlobals<DemoOptions>()
      const config = cli.readConfig(options)
      const world = cli.createWorld({...config, logLevel: config.logLevel ?? 'warn'})
      const folder = dataFolderAt(config.dataDir)
      using _claim = claimDemoFolder(folder)
      const result = await runDemo(config, {...options, days: Math.max(1, options.days)}, world, (words) => {
        if (!options.json) cli.print(words)
      })
      cli.printResult(options, result, renderDemo)
    })
}

const MARK = 'This folder belongs to `loantape demo`, which empties it when it runs again.\n'

/**
 * Makes way for a demo: an empty folder, or one that a demo made and none is using. It is this demo's until disposed.
 *
 * @throws ConfigError `DEMO_FOLDER` when the folder holds anything else; LockedError `DEMO_RUNNING`
 */
function claimDemoFolder(folder: DataFolder): Disposable {
  requireWritable(folder)
  const {root, demoMark} = folder
  if (existsSync(demoMark)) {
    const pid = /^pid (\d+)$/m.exec(readFileSync(demoMark, 'utf8'))?.[1]
    if (pid !== undefined && isProcessAlive(Number(pid))) throw describeRunning(root, pid)
    rmSync(root, {recursive: true, force: true})
  } else if (readdirSync(root).length > 0) {
    throw new ConfigError({
      code: 'DEMO_FOLDER',
      problem: `Data folder '${root}' is neither empty nor a demo's.`,
      kept: 'Nothing was changed.',
      next: 'Give the demo a folder of its own: `loantape demo --data demo-data`.',
    })
  }
  mkdirSync(root, {recursive: true})
  try {
    writeFileSync(demoMark, `${MARK}pid ${process.pid}\n`, {flag: 'wx'})
  } catch (error) {
    throw codeOf(error) === 'EEXIST' ? describeRunning(root, 'unknown') : error
  }
  return {[Symbol.dispose]: () => writeFileSync(demoMark, MARK)}
}

function describeRunning(root: string, pid: string): LockedError {
  return new LockedError({
    code: 'DEMO_RUNNING',
    problem: `Data folder '${root}' is in use by another demo, pid ${pid}: expected one that has ended.`,
    kept: 'Nothing was changed; that demo goes on.',
    next: 'Wait for it to end, or give this one a folder of its own: `loantape demo --data demo-data`.',
  })
}

async function runDemo(
  config: Config,
  options: {deals: number; days: number; seed: string},
  world: World,
  say: (words: string) => void,
): Promise<DemoResult> {
  const now = world.clock.now()
  const today = businessDateOf(now, config)
  const days = Array.from({length: options.days}, (_, index) => addDays(today, index + 1 - options.days))
  const apiKey = 'sk_test_demo'
  // Loaded here: no other command needs a web server.
  const {startService} = await import('../service/server.ts')
  await using service = await startService({apiKeys: [apiKey], clock: world.clock, log: world.log})
  const [firstDay = today] = days
  seedPortfolio(service.store, {deals: options.deals, seed: options.seed, today: firstDay})
  say(`A Deal Financing Service with ${service.store.count()} deals listens on ${service.url}.`)
  const demoConfig: Config = {
    ...config,
    baseUrl: service.url,
    apiKey,
    ratePerSecond: 5000,
    rateBurst: 1000,
    streams: STREAMS.map(({plural}) => plural).join(','),
  }
  const nightly = await requireJob(demoConfig, 'nightly')

  const nights: {day: string; result: JobResult}[] = []
  for (const day of days) {
    if (day !== firstDay) advanceDay(service.store, {seed: options.seed, day})
    const morning = Date.parse(day)
    linkPortfolio(service, {
      seed: options.seed,
      since: day === firstDay ? 0 : morning,
      until: morning + DAY_MS,
    })
    const clock = day === today ? world.clock : createFrozenClock(eveningOf(day, config))
    const startedAt = performance.now()
    const result = await runJob(demoConfig, {job: nightly}, {...world, clock})
    nights.push({day, result})
    say(renderNight(day, result, performance.now() - startedAt))
  }
  const folder = dataFolderAt(config.dataDir)
  const release = requireRelease(folder)
  const releaseIds = nights.map(({result}) => syncOf(result)?.release_id ?? null)
  const previousId = releaseIds.at(-2)
  return {
    days: nights.map(({day, result}, index) => ({
      day,
      release_id: releaseIds[index] ?? null,
      changes: syncOf(result)?.changes ?? emptyChanges,
    })),
    ...(await readPortfolio(release)),
    previous: previousId ? (await readPortfolio(requireRelease(folder, previousId))).summary : null,
    release_dir: folder.current,
    export_dirs:
      nights
        .at(-1)
        ?.result.steps.flatMap((step) => (step.do === 'export' ? step.result.map(({dir}) => dir) : [])) ?? [],
  }
}

const emptyChanges: ChangeCounts = {
  created: 0,
  updated: 0,
  missing: 0,
  vanished: 0,
  restored: 0,
  unchanged: 0,
}

function syncOf({steps}: JobResult) {
  return steps.find((step) => step.do === 'sync')?.result
}

/** The last hour of a day in UTC that still counts for its business date. */
function eveningOf(day: string, config: Config): number {
  const midnight = Date.parse(`${addDays(day, 1)}T00:00:00Z`)
  const hours = Array.from({length: 48}, (_, hour) => midnight + (24 - hour) * 3_600_000)
  return hours.find((instant) => businessDateOf(instant, config) === day) ?? midnight
}

const summaryRow = z.object({
  deals: z.coerce.number(),
  amount: z.string(),
  funded_deals: z.coerce.number(),
  funded_amount: z.string(),
  wa_ltv: z.number().nullable(),
})

type Summary = z.output<typeof summaryRow>

const shareRow = z.object({
  bucket: z.string(),
  deals: z.coerce.number(),
  amount: z.string(),
  share_pct: z.number(),
})

type Share = z.output<typeof shareRow>

async function readPortfolio(
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

function renderNight(day: string, result: JobResult, durationMs: number): string {
  const sync = syncOf(result)
  if (!sync) return `${day}: done.`
  const {created, updated, missing, vanished} = sync.changes
  const changes = `${created} new, ${updated} changed, ${missing} missing, ${vanished} vanished`
  const lists = sync.streams.map(({stream, changes}) => `, ${changes.created} new ${stream}`).join('')
  return `Night of ${day}: ${sync.walk.pages} pages, ${sync.walk.distinct} deals (${changes})${lists}, ${sync.checks.passed} checks passed, ${(durationMs / 1000).toFixed(1)} s.`
}

function renderDemo(result: DemoResult): string {
  const {summary, previous} = result
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
    '  npx loantape query "select * from mart.portfolio_breakdown where dimension = \'state\' order by amount desc limit 10"',
    `  npx loantape query "select deal_id, loan_amount from mart.document_coverage where status = 'underwriting' and not has_appraisal"`,
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
