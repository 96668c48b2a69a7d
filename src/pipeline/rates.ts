import {readFileSync} from 'node:fs'
import {businessDateOf, formatInstant} from '../clock.ts'
import type {Config} from '../config.ts'
import {createFeedsError, parseRateFeeds, type RateFeed} from '../contract/rate-feed.ts'
import {codeOf, LoantapeError} from '../errors.ts'
import {appendRates} from '../load/append-rates.ts'
import type {FeedPage} from '../normalise/feed-page.ts'
import {withRun} from '../state/runs.ts'
import type {Frame} from '../tape/line.ts'
import type {Received, World} from '../types.ts'
import {dataFolderAt, requireWritable} from '../warehouse/data-folder.ts'
import type {Database} from '../warehouse/database.ts'
import {openWarehouse} from '../warehouse/warehouse.ts'
import {type ReadPage, readFeed} from './read-feed.ts'
import {catchUpWarehouse} from './record.ts'
import {openTapes, type Tapes} from './tapes.ts'

/** What became of one feed. */
export interface RateFeedResult {
  feed: string
  /** `failed`: nothing of it was stored, `problems` says why. */
  outcome: 'read' | 'failed'
  /** Rows it held. */
  rows: number
  /** Values appended, and values known already. */
  appended: number
  known: number
  /** Rows without a value. */
  empty: number
  /** Rows that could not be read. */
  rejected: number
  /** The first few of what was wrong. */
  problems: string[]
}

/** What reading the rates came to. */
export interface RatesResult {
  run_id: string | null
  outcome: 'not_configured' | 'appended' | 'unchanged'
  /** Feeds that failed or had rows that could not be read. */
  faulty: number
  feeds: RateFeedResult[]
}

const PROBLEMS_SHOWN = 5

/**
 * Reads every feed of `LOANTAPE_RATES_FILE` and appends what is new. A feed that fails is reported and harms no other;
 * the next release shows what was appended.
 *
 * @throws ConfigError `RATES_FILE`; LockedError `RUN_IN_PROGRESS`
 */
export async function ingestRates(config: Config, world: World): Promise<RatesResult> {
  const feeds = readRateFeeds(config)
  if (feeds.length === 0) return {run_id: null, outcome: 'not_configured', faulty: 0, feeds: []}
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  // Before the warehouse is taken: a feed that hangs holds up nobody.
  const readings: Reading[] = []
  for (const feed of feeds) readings.push(await fetchFeed(feed, config, world))
  return withRun(folder.stateDb, 'rates', world, async ({runId, stateDb}) => {
    await using tapes = openTapes(config, {folder, stateDb}, world)
    await using db = await openWarehouse(folder, world, config)
    await tapes.listLeft()
    await catchUpWarehouse(config, {folder, stateDb, db}, world)
    const results: RateFeedResult[] = []
    for (const reading of readings) results.push(await storeReading({db, tapes}, reading, config, world))
    const isChanged = results.some(({appended}) => appended > 0)
    return {
      run_id: runId,
      outcome: isChanged ? 'appended' : 'unchanged',
      faulty: results.filter(({outcome, rejected}) => outcome === 'failed' || rejected > 0).length,
      feeds: results,
    }
  })
}

/**
 * The feeds that are configured; none without `LOANTAPE_RATES_FILE`.
 *
 * @throws ConfigError `RATES_FILE` naming file and field
 */
export function readRateFeeds({ratesFile}: Config): RateFeed[] {
  if (ratesFile === undefined) return []
  let content: string
  try {
    content = readFileSync(ratesFile, 'utf8')
  } catch (cause) {
    throw createFeedsError(ratesFile, `cannot be read (${codeOf(cause)})`, cause)
  }
  return parseRateFeeds(content, ratesFile)
}

/** What one feed showed; without pages it failed. */
interface Reading {
  feed: RateFeed
  startedAt: number
  pages: ReadPage[] | null
  problems: string[]
}

async function fetchFeed(feed: RateFeed, config: Config, world: World): Promise<Reading> {
  const reading = {feed, startedAt: world.clock.now()}
  try {
    const pages = await readFeed(feed, config, world)
    return {...reading, pages, problems: pages.flatMap(({page}) => page.rejected)}
  } catch (error) {
    if (!(error instanceof LoantapeError) || world.signal.aborted) throw error
    world.log.warn({stream: feed.name, code: error.code, reason: error.problem}, 'feed of rates not read')
    return {...reading, pages: null, problems: [`[${error.code}] ${error.problem}`]}
  }
}

async function storeReading(
  {db, tapes}: {db: Database; tapes: Tapes},
  {feed: {url: _, file: __, key_file: ___, ...parser}, startedAt, pages, problems}: Reading,
  config: Config,
  world: World,
): Promise<RateFeedResult> {
  const {name: feed} = parser
  const shown = problems.slice(0, PROBLEMS_SHOWN)
  if (pages === null) {
    const nothing = {rows: 0, appended: 0, known: 0, empty: 0, rejected: 0}
    return {feed, outcome: 'failed', ...nothing, problems: shown}
  }
  if (problems.length > 0) {
    world.log.warn({stream: feed, count: problems.length, reason: problems[0]}, 'rows of rates rejected')
  }
  const {timeZone} = config
  const businessDate = businessDateOf(startedAt, config)
  const observedAt = BigInt(Math.floor(startedAt)) * 1000n
  const said = {kind: 'rates', feed: parser, businessDate, startedAt: formatInstant(observedAt), timeZone}
  const lines = pages.map(({received}): [Frame, Received] => [{frame: 'rates', feed}, received])
  const now = BigInt(Math.floor(world.clock.now())) * 1000n
  const observations = pages.flatMap(({page}) => page.observations)
  const {appended, known} = await tapes.settleOfDay(businessDate, {said, lines}, (conclude) =>
    appendRates(db, {feed, observations, observedAt, businessDate, now, conclude}),
  )
  const sum = (count: (page: FeedPage) => number) => pages.reduce((total, {page}) => total + count(page), 0)
  return {
    feed,
    outcome: 'read',
    rows: sum(({rows}) => rows),
    appended,
    known,
    empty: sum(({empty}) => empty),
    rejected: problems.length,
    problems: shown,
  }
}
