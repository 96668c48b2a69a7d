import {readFileSync, statSync} from 'node:fs'
import type {Config} from '../config.ts'
import type {RateFeed} from '../contract/rate-feed.ts'
import {ContractError, codeOf, type ErrorCode, type LoantapeError, newError} from '../errors.ts'
import {type FeedPage, parseFeedPage} from '../normalise/feed-page.ts'
import {createClient} from '../source/client.ts'
import type {Received, World} from '../types.ts'

/** As much as the source may answer at once; all pages of a feed together, too. */
const LARGEST_FEED_BYTES = 64 * 1024 * 1024
/** A feed that goes on for ever ends here. */
const MOST_PAGES = 10_000
/** Nobody waits longer for the limits of a feed: other runs wait for their turn meanwhile. */
const LONGEST_WAIT_MINUTES = 2

/**
 * Reads a feed to its end: its file, or its URL and the pages that follow.
 *
 * @throws ContractError `RATES_FORMAT`, `RATES_ANSWER`, `RATES_ENDLESS`, `SOURCE_…`; ConfigError `RATES_READ`;
 * AuthError, DeferredError of the client
 */
export async function readFeed(feed: RateFeed, config: Config, world: World): Promise<ReadPage[]> {
  if (feed.file !== undefined) return [readFile(feed, feed.file, config, world)]
  const url = new URL(feed.url ?? '')
  await using client = createClient(
    {
      ...config,
      baseUrl: url.origin,
      // The source's own query goes to no other server.
      baseUrlQuery: url.search,
      apiKey: findKey(feed, url, config),
      maxWaitMinutes: Math.min(config.maxWaitMinutes, LONGEST_WAIT_MINUTES),
    },
    world,
  )
  const pages: ReadPage[] = []
  const cursors = new Set<string>()
  let bytes = 0
  for (let query = {}; ; ) {
    const {status, text, received} = await client.getText(url.pathname, query)
    if (status >= 400) throw createReadError(feed, 'RATES_ANSWER', `status ${status}: expected an answer`)
    bytes += text.length
    if (bytes > LARGEST_FEED_BYTES) {
      throw createReadError(feed, 'RATES_FORMAT', 'its pages: expected at most 64 MiB')
    }
    const page = parseFeedPage(feed, text, config.timeZone)
    pages.push({page, received})
    const cursor = page.nextCursor
    if (cursor === null) return pages
    if (cursors.has(cursor) || pages.length >= MOST_PAGES) {
      throw createReadError(feed, 'RATES_ENDLESS', 'its pages do not end')
    }
    cursors.add(cursor)
    query = {cursor}
  }
}

/** One page of a feed, read and as it came. */
export interface ReadPage {
  page: FeedPage
  received: Received
}

function readFile(feed: RateFeed, file: string, {timeZone}: Config, {clock, realClock}: World): ReadPage {
  const text = readText(feed, file)
  const received = {
    path: file,
    query: {},
    status: 200,
    headers: {},
    requestedAt: BigInt(Math.floor(clock.now())) * 1000n,
    receivedAt: realClock.now(),
    body: Buffer.from(text),
  }
  return {page: parseFeedPage(feed, text, timeZone), received}
}

/** The key of the source goes nowhere but below its own base URL. */
function findKey(feed: RateFeed, url: URL, {baseUrl, apiKey}: Config): string | undefined {
  if (feed.key_file !== undefined) {
    const key = readText(feed, feed.key_file).trim()
    if (/^[\x21-\x7e]+$/.test(key)) return key
    throw newError(
      'RATES_READ',
      `Feed '${feed.name}': key in '${feed.key_file}': expected printable characters without spaces.`,
    )
  }
  if (baseUrl === undefined) return undefined
  const base = new URL(baseUrl)
  const isBelow =
    url.origin === base.origin && url.pathname.startsWith(`${base.pathname.replace(/\/+$/, '')}/`)
  return isBelow ? apiKey : undefined
}

function readText(feed: RateFeed, file: string): string {
  try {
    const stats = statSync(file)
    // A pipe would never end.
    if (!stats.isFile() || stats.size > LARGEST_FEED_BYTES) {
      throw createReadError(feed, 'RATES_FORMAT', `file '${file}': expected a file of at most 64 MiB`)
    }
    return new TextDecoder().decode(readFileSync(file))
  } catch (cause) {
    if (cause instanceof ContractError) throw cause
    throw newError('RATES_READ', `Feed '${feed.name}': file '${file}' cannot be read (${codeOf(cause)}).`, {
      cause,
    })
  }
}

function createReadError(feed: RateFeed, code: ErrorCode, problem: string): LoantapeError {
  return newError(code, `Feed '${feed.name}': ${problem}.`)
}
