import {existsSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {join, relative} from 'node:path'
import {rowOf} from '../build/release-row.ts'
import {createDealClient} from '../client/client.ts'
import {STREAMS} from '../contract/streams.ts'
import {
  addDays,
  businessDateOf,
  createFrozenClock,
  DAY_MS,
  HOUR_MS,
  sleepUntilStopped,
} from '../core/clock.ts'
import {type Config, requireSource} from '../core/config.ts'
import {codeOf, type LoantapeError, newError} from '../core/errors.ts'
import {centsOf, formatCents, quantity} from '../core/money.ts'
import {isOtherProcess} from '../core/process.ts'
import {type ChangeCounts, NO_CHANGES, type World} from '../core/types.ts'
import type {EventsResult} from '../pipeline.ts'
import {applyEvents, type SyncResult, walkAndApply} from '../pipeline.ts'
import {requireJob} from '../schedule/job.ts'
import {runJob} from '../schedule/run-job.ts'
import {advanceDay, drawEdits} from '../service/advance-day.ts'
import {linkPortfolio, seedPortfolio} from '../service/portfolio.ts'
import type {RunningService} from '../service/server.ts'
import {createDataFolder, type DataFolder, DEMO_PROCESS, dataFolderAt} from '../store/data-folder.ts'
import {openRelease, type Release, requireRelease} from '../store/release.ts'
import {withRun} from '../store/runs.ts'
import {openStateDb, type StateDb} from '../store/state-db.ts'
import {listWaitingEvents} from '../sync/webhook-events.ts'
import {dollars, percent, ratio} from '../web/figures.ts'
import type {CliCommand, Invocation} from './command.ts'
import {readConfig} from './read-config.ts'
import {renderTable, signed} from './table.ts'

export const commands = {demo: addDemo}

interface DemoOptions {
  deals: number
  days: number
  seed: string
}

function addDemo(command: CliCommand): void {
  command
    .description(
      'everything on a local service with a synthetic portfolio, in ./demo-data; needs nothing else',
    )
    .example('demo --days 5')
    .countOption('--deals <count>', 'deals to begin with', 1_000_000, 2500)
    .countOption('--days <count>', 'nights to simulate', 800, 3)
    .option('--seed <seed>', 'the same seed gives the same portfolio', '7')
    .examines()
    .does(async ({cli, options: given}: Invocation<DemoOptions>) => {
      // Never the configured data folder, whose data must last.
      const options = {...given, data: given.data ?? 'demo-data'}
      const config = readConfig(cli, options)
      const world = cli.createWorld({...config, logLevel: config.logLevel ?? 'warn'})
      const folder = dataFolderAt(config.dataDir)
      using _claim = claimDemoFolder(folder)
      const result = await runDemo(config, {...options, days: Math.max(1, options.days)}, world, (words) => {
        if (!options.json) cli.print(words)
      })
      cli.printResult(options, result, () => renderDemo(result, options.data))
    })
}

/** The result of a demo; `demo --json` prints it. */
type DemoResult = Awaited<ReturnType<typeof runDemo>>

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

/** Webhooks of a day's changes arrive this long before its night. */
const DESK_HOURS_MS = 6 * HOUR_MS

/** The last nights get a whole sync and a release. */
const RELEASED = 3

/** Of the earlier nights, one a week is walked, deals only: enough to show how the portfolio grew. */
const EARLY_STEP = 7

async function runDemo(config: Config, options: DemoOptions, world: World, say: (words: string) => void) {
  const today = businessDateOf(world.clock.now(), config)
  const days = Array.from({length: options.days}, (_, index) => addDays(today, index + 1 - options.days))
  const apiKey = 'sk_test_demo'
  const {startService} = await import('../service/server.ts')
  await using service = await startService({
    apiKeys: [apiKey],
    clock: world.clock,
    log: world.log,
    webhooks: {allowPrivate: true},
  })
  const [firstDay = today] = days
  seedPortfolio(service.store, {deals: options.deals, seed: options.seed, today: firstDay})
  say(`A Deal Financing Service with ${quantity(service.store.count(), 'deal')} listens on ${service.url}.`)
  const demoConfig = {
    ...config,
    baseUrl: service.url,
    apiKey,
    ratePerSecond: 5000,
    streams: STREAMS.map(({plural}) => plural).join(','),
  }
  const nightly = await requireJob(demoConfig, 'nightly')
  const folder = dataFolderAt(config.dataDir)
  using stateDb = openStateDb(folder.stateDb)
  await using receiver = await startReceiver(demoConfig, {service, stateDb, folder}, world)

  const releasedFrom = days.at(-RELEASED) ?? firstDay
  const early = days.length - RELEASED
  if (early > 0)
    say(`Of the first ${early} nights, one a week is walked, deals only; the last ${RELEASED} are complete.`)
  const nights: {
    day: string
    release_id: string | null
    changes: ChangeCounts
    /** Changes received since the night before. */
    webhooks: EventsResult | null
  }[] = []
  let exportDirs: string[] = []
  for (const day of days) {
    if (day !== firstDay) advanceDay(service.store, {seed: options.seed, day})
    const worldAt = (instant: number): World =>
      day === today ? world : {...world, clock: createFrozenClock(instant)}
    const evening = eveningOf(day, config)
    if (day < releasedFrom) {
      // A sync without a release, which can be built later.
      if (days.indexOf(day) % EARLY_STEP === 0)
        await withRun(folder.stateDb, 'sync', worldAt(evening), async (run) => ({
          outcome: 'walked',
          ...(await walkAndApply(folder, requireSource({...demoConfig, streams: 'deals'}), {}, run)),
        }))
      continue
    }
    const morning = Date.parse(day)
    linkPortfolio(service, {
      seed: options.seed,
      since: day === releasedFrom ? 0 : morning,
      until: morning + DAY_MS,
    })
    const webhooks =
      day === firstDay
        ? null
        : await receiver.passDay({seed: options.seed, day}, worldAt(evening - DESK_HOURS_MS))
    if (webhooks) {
      const {events, deals, appended} = webhooks
      say(
        `Day of ${day}: ${quantity(events, 'event')} received by webhook, ${quantity(deals, 'deal')} read again, ${appended} of them changed.`,
      )
    }
    const startedAt = performance.now()
    const result = await runJob(demoConfig, {job: nightly}, worldAt(evening))
    const sync = result.steps.find((step) => step.do === 'sync')?.result
    const {release_id = null, changes = NO_CHANGES} = sync ?? {}
    exportDirs = result.steps.flatMap((step) => (step.do === 'export' ? step.result.map(({dir}) => dir) : []))
    nights.push({day, release_id, changes, webhooks})
    say(sync ? renderNight(day, sync, performance.now() - startedAt) : `Night of ${day}: done.`)
  }
  const release = requireRelease(folder)
  const previousId = nights.at(-2)?.release_id
  return {
    days: nights,
    ...(await readPortfolio(release)),
    previous: previousId ? (await readPortfolio(requireRelease(folder, previousId))).summary : null,
    release_dir: folder.current,
    export_dirs: exportDirs,
  }
}

/** The last full hour, in UTC, that counts for a business date. */
function eveningOf(day: string, config: Config): number {
  const midnight = Date.parse(`${addDays(day, 1)}T00:00:00Z`)
  const hours = Array.from({length: 48}, (_, hour) => midnight + (24 - hour) * HOUR_MS)
  return hours.find((instant) => businessDateOf(instant, config) === day) ?? midnight
}

/** Deals that people change between two nights. */
const EDITS = 12

/** Webhooks that arrive later are applied a day later. */
const LONGEST_WAIT_MS = 30_000

/** Starts the web side that `serve` starts, and registers it with the demo's service as a receiver of webhooks. */
async function startReceiver(
  config: Config & {baseUrl: string; apiKey: string},
  {service, stateDb, folder}: {service: RunningService; stateDb: StateDb; folder: DataFolder},
  world: World,
) {
  const client = createDealClient(config)
  // The server needs the registration's secret, but its URL is known only once it runs.
  const endpoint = await client.webhookEndpoints.create({url: service.url, events: ['deal.updated']})
  const webConfig = {...config, webHost: '127.0.0.1', webPort: 0, webhookSecret: endpoint.secret}
  const {startWeb} = await import('../web/web-server.ts')
  const web = await startWeb(webConfig, {stateDb, folder, jobs: []}, world)
  await client.webhookEndpoints.update(endpoint.id, {url: `${web.url}/webhooks/deals`})
  return {
    /** Changes some deals through the API, and applies the webhooks; the same seed and day give the same changes. */
    async passDay(options: {seed: string; day: string}, dayWorld: World): Promise<EventsResult> {
      const edits = drawEdits(service.store, {...options, count: EDITS})
      for (const {id, changes} of edits) await client.deals.update(id, changes)
      await awaitEvents(stateDb, edits.length, dayWorld)
      return applyEvents(config, dayWorld)
    },
    [Symbol.asyncDispose]: () => web[Symbol.asyncDispose](),
  }
}

async function awaitEvents(stateDb: StateDb, count: number, {realClock, signal}: World): Promise<void> {
  const deadline = realClock.now() + LONGEST_WAIT_MS
  while (listWaitingEvents(stateDb).length < count && realClock.now() < deadline && !signal.aborted) {
    await sleepUntilStopped(realClock, 10, signal)
  }
}

const MARK =
  'This folder belongs to `loantape demo`, which empties it when it runs again. No other command puts data into it.\n'

const ACCOUNTS_FILE = 'accounting.json'

/** The accounts of the synthetic lender, so that its journals can be viewed. */
const DEMO_ACCOUNTS = `${JSON.stringify(
  {
    receivable: {
      ground_up_construction: {code: '1220', name: 'Construction loans receivable'},
      multifamily_bridge: {code: '1230', name: 'Multifamily loans receivable'},
      commercial_bridge: {code: '1240', name: 'Commercial loans receivable'},
      '*': {code: '1200', name: 'Loans receivable'},
    },
    clearing: {code: '1090', name: 'Funding clearing'},
    ended: {code: '1000', name: 'Cash'},
    opening: {code: '3900', name: 'Opening balances'},
  },
  null,
  2,
)}\n`

/** Files that a demo, or another command on its data, makes in its folder. */
const MADE_BY_DEMO =
  /^(\.loantape-demo|\.spill|(warehouse|state)\..+|(current|hash\.key)(\.tmp.+)?|scratch|releases|exports|tape|cache|queries|(report-|dictionary\.).+)$/

/**
 * Claims an empty folder, or the folder of an earlier demo, which is emptied. The claim lasts until disposed.
 *
 * @throws ConfigError `DEMO_FOLDER` when the folder holds anything else; LockedError `RUN_IN_PROGRESS`
 */
function claimDemoFolder(folder: DataFolder): Disposable {
  createDataFolder(folder)
  const {root, demoMark} = folder
  const mark = existsSync(demoMark) ? readFileSync(demoMark, 'utf8') : undefined
  const pid = /^pid (\d+)/m.exec(mark ?? '')?.[1]
  if (pid !== undefined && isOtherProcess(Number(pid))) throw describeRunning(root, pid)
  const names = readdirSync(root).sort()
  const isOwn = (name: string) =>
    MADE_BY_DEMO.test(name) ||
    (name === ACCOUNTS_FILE && readFileSync(join(root, name), 'utf8') === DEMO_ACCOUNTS)
  const foreign = mark?.startsWith(MARK) ? names.find((name) => !isOwn(name)) : names[0]
  if (foreign !== undefined)
    throw newError(
      'DEMO_FOLDER',
      `Data folder '${root}' holds '${foreign}': expected an empty folder, or one with only a demo's data.`,
      {next: 'Give the demo a new folder with --data, or remove this one yourself.'},
    )
  // The mark goes last, so that a demo killed here can be started again.
  for (const name of names.reverse()) rmSync(join(root, name), {recursive: true, force: true})
  try {
    writeFileSync(demoMark, `${MARK}${DEMO_PROCESS}\n`, {flag: 'wx'})
    writeFileSync(join(root, ACCOUNTS_FILE), DEMO_ACCOUNTS)
  } catch (error) {
    throw codeOf(error) === 'EEXIST' ? describeRunning(root, 'unknown') : error
  }
  return {[Symbol.dispose]: () => writeFileSync(demoMark, MARK)}
}

function describeRunning(root: string, pid: string): LoantapeError {
  return newError(
    'RUN_IN_PROGRESS',
    `Data folder '${root}' is in use by another demo, pid ${pid}: expected one that has ended.`,
    {next: 'Wait for it to end, or give this one another folder: `loantape demo --data demo-2`.'},
  )
}

/** Totals and shares of a release. */
async function readPortfolio(release: Release) {
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

/** One line about a night's sync. */
function renderNight(day: string, sync: SyncResult, durationMs: number): string {
  const {created, updated, missing, vanished} = sync.changes
  const changes = `${created} new, ${updated} changed, ${missing} missing, ${vanished} vanished`
  const lists = sync.streams
    .map(({stream, changes}) => `, ${quantity(changes.created, `new ${stream.replace(/s$/, '')}`)}`)
    .join('')
  return `Night of ${day}: ${quantity(sync.walk.pages, 'page')}, ${quantity(sync.walk.distinct, 'deal')} (${changes})${lists}, ${quantity(sync.checks.passed, 'check')} passed, ${(durationMs / 1000).toFixed(1)} s.`
}

/**
 * The text below the last night: the portfolio, where the files are, and what to try next.
 *
 * @param dataDir as given in `--data`
 */
function renderDemo(result: DemoResult, dataDir: string): string {
  const {summary, previous} = result
  const quoted = /^[\w./-]+$/.test(dataDir) ? dataDir : `'${dataDir.replaceAll("'", "'\\''")}'`
  const query = `npx loantape query --data ${quoted}`
  const lines = [
    '',
    renderTotal('Open:', summary.open_deals, summary.open_amount, summary.open_wa_ltv),
    renderTotal('Funded:', summary.funded_deals, summary.funded_amount, summary.funded_wa_ltv),
    renderTotal('Ended:', summary.ended_deals, summary.ended_amount),
    '',
    // A status is wholly open or wholly ended, so its table needs no such columns.
    renderTable(
      ['status', {number: 'deals'}, {number: 'amount'}, {number: 'share'}],
      result.by_status.map((share) => [
        share.bucket,
        share.deals,
        dollars(share.amount),
        percent(share.share_pct),
      ]),
    ),
    '',
    renderTable(
      [
        'loan program',
        ...['open deals', 'open amount', 'funded amount', 'of funded'].map((number) => ({number})),
      ],
      result.by_program.map((share) => [
        share.bucket,
        share.open_deals,
        dollars(share.open_amount),
        dollars(share.funded_amount),
        percent(share.funded_share_pct),
      ]),
    ),
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

/** One line of totals. */
function renderTotal(title: string, deals: number, amount: string, ltv: number | null = null): string {
  const share = ltv === null ? '' : `; loan-to-value ${ratio(ltv)}`
  return `${title.padEnd(8)}${quantity(deals, 'deal')}, ${dollars(amount)}${share}.`
}

/** The exact difference of two amounts. */
const difference = (left: string, right: string) => formatCents(centsOf(left) - centsOf(right))

/** A path relative to the working folder when that is shorter to type. */
function shorten(path: string): string {
  const local = relative('.', path)
  return local.startsWith('..') ? path : local
}
