import {z} from 'zod'
import {createSteadyClock, formatInstant} from '../core/clock.ts'
import {type Config, requireSource} from '../core/config.ts'
import {codeOf, LoantapeError, newError} from '../core/errors.ts'
import {parseWritten} from '../core/json.ts'
import type {Received, World} from '../core/types.ts'
import {createClient} from '../source/client.ts'
import {walkPages} from '../source/walk-pages.ts'
import {type DataFolder, dataFolderAt, requireOwnPlace, requireWritable} from '../store/data-folder.ts'
import {readWritten, readWrittenText} from '../store/files.ts'
import {findLastSuccess, summaryOf, withRun} from '../store/runs.ts'
import {hasStateDb, openStateDb} from '../store/state-db.ts'
import {askSource, readDescription, readPin, requireClock} from './at-source.ts'
import {openToSettle} from './catch-up.ts'
import type {Answer} from './intake.ts'
import {createFeedError, feedsFile, parseRates, type RateFeed} from './rate-feed.ts'
import {settleBeside} from './settle.ts'
import {findBusinessDate} from './walk.ts'

/** None if `LOANTAPE_RATES_FILE` is not set. @throws ConfigError `RATES_FILE`; `FLEET_DATA_SHARED` */
export function readRateFeeds(config: Config): RateFeed[] {
  const {ratesFile} = config
  if (ratesFile === undefined) return []
  const refuse = (problem: string, cause?: unknown) =>
    newError('RATES_FILE', `Rate feeds in '${ratesFile}': ${problem}.`, {cause})
  const {feeds} = parseWritten(readWrittenText(ratesFile, refuse), refuse, feedsFile)
  for (const {csv} of feeds) if (csv !== undefined && !isUrl(csv)) requireOwnPlace(config, csv)
  return feeds
}

const isUrl = (csv: string) => /^https?:\/\//.test(csv)

export type RatesResult = Awaited<ReturnType<typeof ingestRates>>

const PROBLEMS_SHOWN = 5

/**
 * Reads every feed and appends what is new. A feed that fails is reported and does not affect the others.
 * @throws ConfigError `RATES_FILE`; LockedError `RUN_IN_PROGRESS`; DeferredError `CLOCK_STEPPED`
 */
export async function ingestRates(config: Config, outside: World) {
  const world = {...outside, clock: createSteadyClock(outside.clock, 0)}
  const feeds = readRateFeeds(config)
  const readings: Awaited<ReturnType<typeof readFeed>>[] = []
  const folder = dataFolderAt(config.dataDir)
  if (feeds.length === 0 && !wasFaulty(folder))
    return {run_id: null, outcome: 'not_configured' as const, faulty: 0, feeds: []}
  requireWritable(folder)
  // Read before the warehouse is locked, so a feed that hangs blocks nobody.
  const hurried = {...config, maxWaitMinutes: Math.min(config.maxWaitMinutes, LONGEST_WAIT_MINUTES)}
  for (const feed of feeds) readings.push(await readFeed(feed, hurried, world))
  return withRun(folder.stateDb, 'rates', world, async ({runId, stateDb}) => {
    await using opened = await openToSettle(config, {folder, stateDb}, world)
    const {db, streams} = opened
    await requireClock(db, config, world.clock.now())
    for (const {feed, now, lines, report} of readings) {
      if (report.outcome === 'failed') continue
      const businessDate = await findBusinessDate(db, streams[0], config, now)
      const startedAt = formatInstant(BigInt(now) * 1000n)
      const said = {kind: 'rates', feed, businessDate, startedAt, timeZone: config.timeZone}
      const {read, appended} = await settleBeside(opened, businessDate, {said, lines}, world)
      Object.assign(report, {appended, known: read - appended})
    }
    const results = readings.map(({report}) => report)
    return {
      run_id: runId,
      outcome: results.some(({appended}) => appended > 0) ? ('appended' as const) : ('unchanged' as const),
      /** Feeds that failed or had unreadable rows. */
      faulty: results.filter(({outcome, rejected}) => outcome === 'failed' || rejected > 0).length,
      feeds: results,
    }
  })
}

/** Whether an alarm of feeds holds: only another run ends it, even if no feed is left. */
function wasFaulty(folder: DataFolder): boolean {
  if (!hasStateDb(folder)) return false
  using stateDb = openStateDb(folder.stateDb)
  const last = summaryOf(findLastSuccess(stateDb, 'rates'), z.object({faulty: z.number()}))
  return last !== undefined && last.faulty > 0
}

async function readFeed(feed: RateFeed, config: Config, world: World) {
  const {csv, ...parser} = feed
  const now = world.clock.now()
  const report = {
    feed: feed.name,
    /** `failed`: nothing was stored. */
    outcome: 'read' as 'read' | 'failed',
    rows: 0,
    empty: 0,
    rejected: 0,
    appended: 0,
    known: 0,
    problems: [] as string[],
  }
  try {
    const answers =
      csv === undefined
        ? await askService(feed, config, world)
        : [await readCsvSource(feed, csv, config, world)]
    const lines = answers.map((received) => {
      const body = new TextDecoder().decode(received.body)
      return {frame: {frame: 'rates', feed: feed.name}, body, received} satisfies Answer
    })
    const rows = lines.flatMap(({body}) => parseRates(feed, body, config.timeZone))
    const rejected = rows.filter((row) => typeof row === 'string')
    if (rejected.length > 0)
      world.log.warn(
        {stream: feed.name, count: rejected.length, reason: rejected[0]},
        'rows of rates rejected',
      )
    const empty = rows.filter((row) => row === null).length
    const problems = rejected.slice(0, PROBLEMS_SHOWN)
    Object.assign(report, {rows: rows.length, empty, rejected: rejected.length, problems})
    return {feed: parser, now, lines, report}
  } catch (error) {
    if (!(error instanceof LoantapeError) || world.signal.aborted) throw error
    world.log.warn({stream: feed.name, code: error.code, reason: error.problem}, 'feed of rates not read')
    Object.assign(report, {outcome: 'failed', problems: [`[${error.code}] ${error.problem}`]})
    return {feed: parser, now, lines: [], report}
  }
}

const PAGE_SIZE = 100
const MOST_PAGES = 1_000
/** For the rate limits of a feed: other jobs wait meanwhile. */
const LONGEST_WAIT_MINUTES = 2

async function askService(feed: RateFeed, config: Config, world: World): Promise<Received[]> {
  const folder = dataFolderAt(config.dataDir)
  const source = {...requireSource(config), description: readDescription(folder)}
  await readPin(folder, source, world)
  using stateDb = openStateDb(folder.stateDb)
  return await askSource(source, stateDb, world, async (client) => {
    const answers: Received[] = []
    for await (const {received} of walkPages({path: '/rates', pageSize: PAGE_SIZE}, client)) {
      if (answers.length === MOST_PAGES) throw createFeedError(feed, `more than ${MOST_PAGES} pages`)
      answers.push(received)
    }
    return answers
  })
}

async function readCsvSource(feed: RateFeed, csv: string, config: Config, world: World): Promise<Received> {
  if (!isUrl(csv)) return readCsvFile(feed, csv, world)
  if (!URL.canParse(csv)) throw createFeedError(feed, 'expected a URL or a file in csv')
  const {origin, pathname, search} = new URL(csv)
  // The source's key, certificate and query never go to another server.
  const mine = {apiKey: undefined, nextApiKey: undefined, clientCertFile: undefined}
  await using client = createClient({...config, ...mine, baseUrl: origin, baseUrlQuery: search}, world)
  const received = await client.getText(pathname)
  if (received.status >= 400) throw createFeedError(feed, `status ${received.status}: expected CSV`)
  return received
}

function readCsvFile(feed: RateFeed, file: string, {clock, realClock}: World): Received {
  try {
    return {
      path: file,
      query: {},
      status: 200,
      headers: {},
      requestedAt: BigInt(clock.now()) * 1000n,
      receivedAt: realClock.now(),
      body: readWritten(file),
    }
  } catch (cause) {
    throw createFeedError(feed, `file '${file}' cannot be read (${codeOf(cause)})`, cause)
  }
}
