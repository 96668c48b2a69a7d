import {readFileSync} from 'node:fs'
import {businessDateOf} from '../clock.ts'
import type {Config} from '../config.ts'
import {createFeedsError, parseRateFeeds, type RateFeed} from '../contract/rate-feed.ts'
import {codeOf, LoantapeError} from '../errors.ts'
import {withRun} from '../ledger/runs.ts'
import {appendRates} from '../load/rates.ts'
import type {FeedPage} from '../normalise/rate-feed.ts'
import type {World} from '../types.ts'
import {dataFolderAt, requireWritable} from '../warehouse/data-folder.ts'
import type {Database} from '../warehouse/database.ts'
import {refreshHistory} from '../warehouse/history.ts'
import {openWarehouse} from '../warehouse/warehouse.ts'
import {readFeed} from './rate-feed.ts'

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
  return withRun(folder.ledger, 'rates', world, async ({runId}) => {
    await using db = await openWarehouse(folder, world)
    const results: RateFeedResult[] = []
    for (const feed of feeds) results.push(await ingestFeed(db, feed, config, world))
    const isChanged = results.some(({appended}) => appended > 0)
    if (isChanged) await refreshHistory(db, folder)
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

async function ingestFeed(
  db: Database,
  feed: RateFeed,
  config: Config,
  world: World,
): Promise<RateFeedResult> {
  const result: RateFeedResult = {
    feed: feed.name,
    outcome: 'failed',
    rows: 0,
    appended: 0,
    known: 0,
    empty: 0,
    rejected: 0,
    problems: [],
  }
  const startedAt = world.clock.now()
  const pages = await readFeed(feed, config, world).catch((error: unknown) => {
    if (!(error instanceof LoantapeError) || world.signal.aborted) throw error
    world.log.warn({stream: feed.name, code: error.code, reason: error.problem}, 'feed of rates not read')
    result.problems.push(`[${error.code}] ${error.problem}`)
    return null
  })
  if (pages === null) return result
  const rejected = pages.flatMap((page) => page.rejected)
  if (rejected.length > 0) {
    world.log.warn({stream: feed.name, count: rejected.length, reason: rejected[0]}, 'rows of rates rejected')
  }
  const counts = await appendRates(db, {
    feed: feed.name,
    observations: pages.flatMap((page) => page.observations),
    observedAt: BigInt(Math.floor(startedAt)) * 1000n,
    businessDate: businessDateOf(startedAt, config),
    now: BigInt(Math.floor(world.clock.now())) * 1000n,
  })
  const sum = (count: (page: FeedPage) => number) => pages.reduce((total, page) => total + count(page), 0)
  return {
    ...result,
    ...counts,
    outcome: 'read',
    rows: sum(({rows}) => rows),
    empty: sum(({empty}) => empty),
    rejected: rejected.length,
    problems: rejected.slice(0, PROBLEMS_SHOWN),
  }
}
