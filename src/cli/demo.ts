import {existsSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {addDays, businessDateOf, createFrozenClock, DAY_MS, HOUR_MS} from '../clock.ts'
import {type Config, requireSource} from '../config.ts'
import {STREAMS} from '../contract/streams.ts'
import {codeOf, type LoantapeError, newError} from '../errors.ts'
import {quantity} from '../money.ts'
import {walkAndApply} from '../pipeline.ts'
import {isOtherProcess} from '../process.ts'
import {requireRelease} from '../release/manifest.ts'
import {requireJob} from '../schedule/job.ts'
import {runJob} from '../schedule/run-job.ts'
import {advanceDay} from '../service/advance-day.ts'
import {linkPortfolio} from '../service/linked-portfolio.ts'
import {seedPortfolio} from '../service/portfolio.ts'
import {withRun} from '../state/runs.ts'
import {openStateDb} from '../state/state-db.ts'
import {NO_CHANGES, type World} from '../types.ts'
import {createDataFolder, type DataFolder, DEMO_PROCESS, dataFolderAt} from '../warehouse/data-folder.ts'
import type {Call, CliCommand} from './command.ts'
import {startReceiver} from './demo-day.ts'
import {type DemoResult, readPortfolio, renderDay, renderDemo, renderNight} from './demo-report.ts'
import {parseCount} from './options.ts'
import {readConfig} from './read-config.ts'

/** What people change in a day is told of this long before its night. */
const DESK_HOURS_MS = 6 * HOUR_MS

/** The last nights, which are synced whole. */
const RELEASED = 3

/** Before them one night a week is walked, for deals alone: they tell how the portfolio became what it is. */
const EARLY_STEP = 7

interface DemoOptions {
  deals: number
  days: number
  seed: string
}

/** `loantape demo`. */
export default function addDemo(command: CliCommand): void {
  command
    .description(
      'everything on a local service with a synthetic portfolio, in ./demo-data; needs nothing else',
    )
    .example('demo --days 5')
    .option('--deals <count>', 'deals to begin with', parseCount('--deals', 1_000_000), 2500)
    .option('--days <count>', 'nights to simulate', parseCount('--days', 800), 3)
    .option('--seed <seed>', 'the same seed gives the same portfolio', '7')
    .examines()
    .does(async ({cli, options: given}: Call<DemoOptions>) => {
      // Never the folder of the settings: that is for data meant to last.
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

const MARK =
  'This folder belongs to `loantape demo`, which empties it when it runs again. No other command puts data into it.\n'

const ACCOUNTS_FILE = 'accounting.json'

/** Where the synthetic lender books its loans, so that its journals can be looked at. */
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

/** What a demo leaves in its folder, and what other commands make there of it. */
const MADE_BY_DEMO =
  /^(\.loantape-demo|\.spill|(warehouse|state)\..+|(current|hash\.key)(\.tmp-.+)?|scratch|releases|exports|tape|cache|queries|(report-|dictionary\.).+)$/

/**
 * Makes way for a demo: an empty folder, or one that a demo made, none is using and nobody put anything into. It is this
 * demo's until disposed.
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
      `Data folder '${root}' holds '${foreign}': expected an empty folder, or one with a demo's data alone.`,
      {next: 'Give the demo a new folder with --data, or remove this one yourself.'},
    )
  // The mark last: what is killed amid this can be emptied again.
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

  // A release of any night before can be built at any time.
  const releasedFrom = days.at(-RELEASED) ?? firstDay
  const early = days.length - RELEASED
  if (early > 0)
    say(`Of the first ${early} nights one a week is walked, for deals alone; the last ${RELEASED} are whole.`)
  const nights: DemoResult['days'] = []
  let exportDirs: string[] = []
  for (const day of days) {
    if (day !== firstDay) advanceDay(service.store, {seed: options.seed, day})
    const worldAt = (instant: number): World =>
      day === today ? world : {...world, clock: createFrozenClock(instant)}
    const evening = eveningOf(day, config)
    if (day < releasedFrom) {
      if (days.indexOf(day) % EARLY_STEP === 0)
        await walkNight({...demoConfig, streams: 'deals'}, worldAt(evening))
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
    if (webhooks) say(renderDay(day, webhooks))
    const startedAt = performance.now()
    const result = await runJob(demoConfig, {job: nightly}, worldAt(evening))
    const sync = result.steps.find((step) => step.do === 'sync')?.result
    exportDirs = result.steps.flatMap((step) => (step.do === 'export' ? step.result.map(({dir}) => dir) : []))
    nights.push({
      day,
      release_id: sync?.release_id ?? null,
      changes: sync?.changes ?? NO_CHANGES,
      webhooks,
    })
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

/** A sync that ends before its release. */
async function walkNight(config: Config, world: World): Promise<void> {
  const folder = dataFolderAt(config.dataDir)
  await withRun(folder.stateDb, 'sync', world, async (run) => ({
    outcome: 'walked',
    ...(await walkAndApply(folder, requireSource(config), {}, run)),
  }))
}

/** The last hour of a day in UTC that still counts for its business date. */
function eveningOf(day: string, config: Config): number {
  const midnight = Date.parse(`${addDays(day, 1)}T00:00:00Z`)
  const hours = Array.from({length: 48}, (_, hour) => midnight + (24 - hour) * HOUR_MS)
  return hours.find((instant) => businessDateOf(instant, config) === day) ?? midnight
}
