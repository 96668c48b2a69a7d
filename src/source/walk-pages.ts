import {STATUS_CODES} from 'node:http'
import {setImmediate as nextTurn} from 'node:timers/promises'
import {createListProgress, type PageBody, readPage} from '../contract/list.ts'
import {PROBLEMS} from '../contract/problem.ts'
import {type LoantapeError, newError} from '../core/errors.ts'
import {isObject} from '../core/json.ts'
import {tellForeign} from '../core/text.ts'
import type {Received} from '../core/types.ts'
import type {JsonAnswer, SourceClient} from './client.ts'

/** Keeps a failed read-ahead from becoming an unhandled rejection; awaiting it still throws. */
export function readAhead<T>(answer: Promise<T>): Promise<T> {
  void Promise.allSettled([answer])
  return answer
}

export interface WalkRequest {
  /** Relative to the base URL. */
  path: string
  /** The start by default. */
  cursor?: string | null
  /** Cursors and ids that a resumed walk has seen. The ids of new pages are added. */
  seenCursors?: Iterable<string>
  seenIds?: Set<string>
  /** The walk fails if the list has more records than this. No limit by default. */
  mostIds?: number
  pageSize: number
  /** `{status: 'funded'}` */
  filter?: Record<string, string> | undefined
  /** The pinned envelope, as {@link readPage} names it; by default that of the first page. */
  envelope?: string | null
}

/** Its records are not yet checked to be objects. */
export interface Page extends PageBody {
  /** The cursor of the request; null for the first page. */
  cursor: string | null
  body: unknown
  received: Received
}

/** A page may hold up to this many times the records asked for. A source that ignores the page size sends its whole list. */
const MOST_TIMES_PAGE = 10
/** Statuses with which sources refuse an unknown or expired cursor. */
const CURSOR_REFUSALS = new Set([400, 404, 410, 422])

/**
 * Walks the pages of a list in the source's order, and fetches one page ahead while the consumer handles the last. A page
 * already received is still yielded after the world's signal has aborted.
 * @throws ContractError `SOURCE_CURSOR_LOOP`, `SOURCE_ENDLESS`, `SOURCE_TOO_LARGE`, `SOURCE_CURSOR_REFUSED`, `SOURCE_NOT_FOUND`,
 *   `SOURCE_REQUEST_REFUSED`, and those of the envelope; whatever the client throws
 */
export async function* walkPages(
  request: WalkRequest,
  client: Pick<SourceClient, 'getJson'>,
): AsyncGenerator<Page, void, undefined> {
  const consumer = new AbortController()
  let progress: ReturnType<typeof createListProgress> | undefined
  let {cursor = null, envelope = null} = request

  async function askForPage(cursor: string | null): Promise<JsonAnswer> {
    const {path, pageSize: limit, filter} = request
    const query = {limit, ...filter, ...(cursor !== null && {cursor})}
    const answer = await client.getJson(path, query, consumer.signal)
    if (answer.status >= 400) throw createRefused(answer, cursor !== null)
    return answer
  }

  let ahead: Promise<JsonAnswer> | null = readAhead(askForPage(cursor))
  try {
    while (ahead) {
      const current: Promise<JsonAnswer> = ahead
      ahead = null
      const {body, received} = await current
      const page: Page = {...readPage(body, envelope), cursor, body, received}
      const {records, nextCursor} = page
      envelope = page.envelope
      // A described source may send the whole list as one page.
      if (!received.original && records.length > request.pageSize * MOST_TIMES_PAGE)
        throw newError(
          'SOURCE_TOO_LARGE',
          `Page of ${records.length} records at GET ${request.path}: expected about the ${request.pageSize} asked for, at most ${MOST_TIMES_PAGE} times as many.`,
          {
            kept: 'Everything read so far is kept; nothing is concluded from this walk.',
            next: 'If the source always sends pages this large, describe it in source.json (docs/sources.md), where a page may have any size; otherwise report this to whoever runs it.',
          },
        )
      requireFiltered(request, page)
      progress ??= createListProgress({
        ...request,
        name: `GET ${received.original?.path ?? received.path}`,
        cursors: [...(request.seenCursors ?? []), request.cursor ?? null],
      })
      progress.take(page)
      if (nextCursor !== null) {
        cursor = nextCursor
        ahead = readAhead(askForPage(cursor))
        // undici sends it two turns of the event loop later, once it knows that the connection is still open. A busy consumer
        // would delay that.
        await nextTurn()
        await nextTurn()
      }
      yield page
    }
  } finally {
    // If the consumer gave up, the result of the page ahead does not matter.
    consumer.abort()
    await Promise.allSettled([ahead])
  }
}

/** The request as the source got it, for errors: `GET /loans (per_page, stage)`. */
function tellAsked({original, path, query}: Received): string {
  const asked = original ?? {path, query}
  const names = Object.keys(asked.query).join(', ')
  return `GET ${asked.path}${names && ` (${names})`}`
}

/** Not Found and Gone (RFC 9110). */
export const isGone = (status: number): boolean => status === 404 || status === 410

const plain = (text: unknown) => (typeof text === 'string' ? text.trim().toLowerCase() : undefined)

/** The record has another status than the one asked for, in any spelling. */
export function hasOtherStatus(status: string | undefined, record: unknown): boolean {
  const found = isObject(record) ? plain(record.status) : undefined
  return status !== undefined && found !== undefined && found !== plain(status)
}

/** A source that ignores the filter lists every deal. */
function requireFiltered({filter: {status} = {}}: WalkRequest, {records, received}: Page): void {
  const others = records.filter((record) => hasOtherStatus(status, record)).length
  if (others === 0) return
  throw newError(
    'SOURCE_REQUEST_REFUSED',
    `${others} of ${records.length} records at ${tellAsked(received)} have another status than '${status}': expected that one alone.`,
    {
      next: 'Correct LOANTAPE_STAGE, or name the parameter that filters by status as `filter` in source.json (docs/sources.md).',
    },
  )
}

const KNOWN_REASONS = new Set([...Object.keys(PROBLEMS), ...Object.values(STATUS_CODES).map(String)])

/** `code` or `title` of problem details (RFC 9457); a word that is not known is hashed. */
function reasonOf(body: unknown): string {
  if (!isObject(body)) return ''
  const given = [body.code, body.title].find((text) => typeof text === 'string' && text !== '')
  return typeof given === 'string' ? ` (${tellForeign(given, KNOWN_REASONS)})` : ''
}

export function createRefused({status, body, received}: JsonAnswer, hasCursor = false): LoantapeError {
  const answered = `Status ${status}${reasonOf(body)} from the source at ${tellAsked(received)}`
  if (hasCursor && CURSOR_REFUSALS.has(status))
    return newError('SOURCE_CURSOR_REFUSED', `${answered}: expected the next page.`)
  const code = isGone(status) ? 'SOURCE_NOT_FOUND' : 'SOURCE_REQUEST_REFUSED'
  return newError(code, `${answered}: expected a list.`)
}
