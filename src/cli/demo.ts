import {existsSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {join, relative} from 'node:path'
import {z} from 'zod'
import {DEFAULT_MAPPING} from '../accounting/mapping.ts'
import {createDealClient} from '../client/client.ts'
import {STREAMS} from '../contract/streams.ts'
import {addDays, businessDateOf, DAY_MS, HOUR_MS, sleepUntilStopped} from '../core/clock.ts'
import {type Config, parseConfig, requireSource} from '../core/config.ts'
import {codeOf, type LoantapeError, newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {isOtherProcess} from '../core/process.ts'
import {FIXED} from '../core/settings.ts'
import {NO_CHANGES, type World} from '../core/types.ts'
import {applyEvents, type EventsResult, walkAndApply} from '../pipeline.ts'
import {requireJob} from '../schedule/job.ts'
import {runJob} from '../schedule/run-job.ts'
import {advanceDay, drawEdits, linkPortfolio, seedPortfolio} from '../service/portfolio.ts'
import type {RunningService} from '../service/server.ts'
import {createDataFolder, type DataFolder, DEMO_PROCESS, dataFolderAt} from '../store/data-folder.ts'
import {openRelease, requireRelease} from '../store/release.ts'
import {withRun} from '../store/runs.ts'
import {openStateDb, type StateDb} from '../store/state-db.ts'
import {listWaitingEvents} from '../sync/webhook-events.ts'
import {dollars, percent, ratio} from '../web/figures.ts'
import {does, type Invocation} from './command.ts'
import {readConfig} from './read-config.ts'
import {renderSteps} from './run.ts'
import {figure, quoteForShell, type Text, tableOf} from './table.ts'

export const commands = {
  demo: does(async ({cli, options: given}: Invocation<DemoOptions>) => {
    // Not the configured data folder: a demo empties its folder.
    const options = {...given, data: given.data ?? 'demo-data'}
    const config = forDemo(readConfig(cli, options))
    const world = cli.createWorld({...config, logLevel: config.logLevel ?? 'warn'})
    const folder = dataFolderAt(config.dataDir)
    using _claim = claimDemoFolder(folder)
    const result = await runDemo(config, options, world, (words) => {
      if (!options.json) cli.printText(words)
    }).catch((cause: unknown) => {
      if (!world.signal.aborted) throw cause
      throw newError('INTERRUPTED', 'The demo was asked to stop.', {
        kept: `What it has made so far is in '${folder.root}'.`,
        next: 'The next demo begins anew.',
        cause,
      })
    })
    cli.printResult(options, result, () => renderDemo(result, options.data))
  }),
}

/** Of the lender's configuration, a demo takes no jobs, targets, servers, models or alarms. */
const OF_LENDER = [
  'dataDir',
  'timeZone',
  'dayCutoff',
  'memoryMb',
  'tapeKeyFile',
  'defaultKeyFile',
  'logLevel',
  'now',
]

const forDemo = (config: Config): Config => ({
  ...parseConfig({HOME: '/'}, {readFile: () => ''}),
  ...Object.fromEntries(
    Object.entries(config).filter(([key]) => OF_LENDER.includes(key) || Object.hasOwn(FIXED, key)),
  ),
})

interface DemoOptions {
  deals: number
  days: number
  seed: string
}

const shownSummary = z.object({
  deals: z.coerce.number(),
  amount: z.string(),
  open_deals: z.coerce.number(),
  open_amount: z.string(),
  open_wa_ltv: z.coerce.number().nullable(),
  ended_deals: z.coerce.number(),
  ended_amount: z.string(),
  funded_deals: z.coerce.number(),
  funded_amount: z.string(),
  funded_wa_ltv: z.coerce.number().nullable(),
})

const statusRow = z.object({
  bucket: z.string(),
  deals: z.coerce.number(),
  amount: z.string(),
  share_pct: z.coerce.number().nullable(),
})

/** How long before its night a day's webhooks arrive. */
const DESK_HOURS_MS = 6 * HOUR_MS

/** The last nights, with a whole sync and a release. */
const RELEASED = 3

/** Of the nights before, one a week is walked, deals only, which is enough to show how the portfolio grew. */
const EARLY_STEP = 7

async function runDemo(
  config: Config,
  {deals, days: count, seed}: DemoOptions,
  world: World,
  say: (words: Text) => void,
) {
  const today = businessDateOf(world.clock.now(), config)
  const days = Array.from({length: count}, (_, index) => addDays(today, index + 1 - count))
  const apiKey = 'sk_test_demo'
  const {startService} = await import('../service/server.ts')
  await using service = await startService({
    apiKeys: [apiKey],
    clock: world.clock,
    log: world.log,
    webhooks: {allowPrivate: true},
  })
  const [firstDay = today] = days
  seedPortfolio(service.store, {deals, seed, today: firstDay})
  say(`A Deal Financing Service with ${quantity(service.store.count(), 'deal')} listens on ${service.url}.`)
  const demoConfig = {
    ...config,
    baseUrl: service.url,
    apiKey,
    ratePerSecond: 5000,
    streams: STREAMS.map(({plural}) => plural).join(','),
  }
  const nightly = requireJob(demoConfig, 'nightly')
  const folder = dataFolderAt(config.dataDir)
  using stateDb = openStateDb(folder.stateDb)
  await using receiver = await startReceiver(demoConfig, {service, stateDb, folder}, world)

  const releasedFrom = days.at(-RELEASED) ?? firstDay
  if (days.length > RELEASED)
    say(`Of the nights before the last ${RELEASED}, one a week is walked, deals only.`)
  const nights = []
  for (const day of days) {
    if (day !== firstDay) advanceDay(service.store, {seed, day})
    const worldAt = (instant: number): World =>
      day === today ? world : {...world, clock: {now: () => instant}}
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
    linkPortfolio(service, {seed, since: day === releasedFrom ? 0 : morning, until: morning + DAY_MS})
    /** Received since the night before. */
    const webhooks =
      day === firstDay ? null : await receiver.passDay({seed, day}, worldAt(evening - DESK_HOURS_MS))
    if (webhooks) {
      const {events, deals, appended} = webhooks
      say(
        `Day of ${day}: ${quantity(events, 'event')} received by webhook, ${quantity(deals, 'deal')} read again, ${appended} of them changed.`,
      )
    }
    const {steps} = await runJob(demoConfig, {job: nightly}, worldAt(evening))
    const {release_id = null, changes = NO_CHANGES} = steps.find((step) => step.do === 'sync')?.result ?? {}
    nights.push({day, release_id, changes, webhooks})
    say([`Night of ${day}:`, {indented: renderSteps(steps)}])
  }
  await using db = await openRelease(requireRelease(folder))
  const ofStatus = "from mart.portfolio_breakdown where dimension = 'status' order by sort_order, bucket"
  return {
    days: nights,
    summary: await db.one(shownSummary, 'from mart.portfolio_summary'),
    by_status: await db.all(statusRow, ofStatus),
    release_dir: folder.current,
  }
}

/** The last full hour, in UTC. */
function eveningOf(day: string, config: Config): number {
  const midnight = Date.parse(`${addDays(day, 1)}T00:00:00Z`)
  const hours = Array.from({length: 48}, (_, hour) => midnight + (24 - hour) * HOUR_MS)
  return hours.find((instant) => businessDateOf(instant, config) === day) ?? midnight
}

const EDITS = 12

/** Later webhooks are applied the next day. */
const LONGEST_WAIT_MS = 30_000

/** Starts the web side as `serve` does. */
async function startReceiver(
  config: Config & {baseUrl: string; apiKey: string},
  {service, stateDb, folder}: {service: RunningService; stateDb: StateDb; folder: DataFolder},
  world: World,
) {
  const client = createDealClient(config)
  // Registered first, because the web side needs the secret; its URL is set once it runs.
  const endpoint = await client.webhookEndpoints.create({url: service.url, events: ['deal.updated']})
  const webConfig = {...config, webHost: '127.0.0.1', webPort: 0, webhookSecret: endpoint.secret}
  const {startWeb} = await import('../web/web-server.ts')
  const web = await startWeb(webConfig, {stateDb, folder, listJobs: () => []}, world)
  await client.webhookEndpoints.update(endpoint.id, {url: `${web.url}/webhooks/deals`})
  return {
    /** The same seed and day give the same changes. */
    async passDay(options: {seed: string; day: string}, dayWorld: World): Promise<EventsResult> {
      const edits = drawEdits(service.store, {...options, count: EDITS})
      for (const {id, changes} of edits) await client.deals.update(id, changes)
      const {realClock, signal} = dayWorld
      const deadline = realClock.now() + LONGEST_WAIT_MS
      const hasAll = () => listWaitingEvents(stateDb).length >= edits.length
      while (!hasAll() && realClock.now() < deadline && !signal.aborted)
        await sleepUntilStopped(realClock, 10, signal)
      return applyEvents(config, dayWorld)
    },
    [Symbol.asyncDispose]: () => web[Symbol.asyncDispose](),
  }
}

const MARK =
  'This folder belongs to `loantape demo`, which empties it when it runs again. No other command puts data into it.\n'

const ACCOUNTS_FILE = 'accounting.json'

/** With accounts, journals of the synthetic lender can be shown. */
const DEMO_ACCOUNTS = `${JSON.stringify(DEFAULT_MAPPING, null, 2)}\n`

/** A demo, or another command on its data, makes these. */
const MADE_BY_DEMO =
  /^(\.loantape-demo|\.spill|\.writing-.+|(warehouse|state)\..+|current|hash\.key|scratch|releases|exports|tape|cache|queries|(report-|dictionary\.).+)$/

/**
 * Empties an earlier demo's folder; a `fields.json` stays and counts. @throws ConfigError `DEMO_FOLDER`, LockedError
 * `RUN_IN_PROGRESS`
 */
function claimDemoFolder(folder: DataFolder): Disposable {
  createDataFolder(folder)
  const {root, demoMark, fields} = folder
  const mark = existsSync(demoMark) ? readFileSync(demoMark, 'utf8') : undefined
  const [, pid, start] = /^pid (\d+)(?: since (\d+)$)?/m.exec(mark ?? '') ?? []
  if (pid !== undefined && isOtherProcess(Number(pid), start)) throw describeRunning(root, pid)
  const names = readdirSync(root)
    .filter((name) => join(root, name) !== fields)
    .sort()
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
  // The mark is removed last, so that a demo killed here can be started again.
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

function renderDemo(
  {summary, by_status, release_dir}: Awaited<ReturnType<typeof runDemo>>,
  dataDir: string,
): Text {
  const quoted = quoteForShell(dataDir)
  const query = `npx loantape query --data ${quoted}`
  const local = relative('.', release_dir)
  const parts = (['open', 'funded', 'ended'] as const).map((part) => ({
    part,
    deals: summary[`${part}_deals`],
    amount: figure(dollars(summary[`${part}_amount`])),
    'loan-to-value': part === 'ended' ? null : figure(ratio(summary[`${part}_wa_ltv`])),
  }))
  const statuses = by_status.map(({bucket: status, deals, amount, share_pct}) => {
    return {status, deals, amount: figure(dollars(amount)), share: figure(percent(share_pct))}
  })
  return [
    ...['', tableOf(parts), '', tableOf(statuses)],
    `\nRelease: ${local.startsWith('..') ? release_dir : local}/portfolio.duckdb, and each table as Parquet beside it`,
    '\nThree things to try next:',
    `  ${query} "select bucket, open_deals, open_amount, funded_amount from mart.portfolio_breakdown where dimension = 'state' order by open_amount desc limit 10"`,
    `  ${query} "select deal_id, loan_amount from mart.document_coverage where status = 'underwriting' and not has_appraisal"`,
    `  npx loantape serve --data ${quoted}    which shows it all at http://127.0.0.1:8321`,
  ]
}
