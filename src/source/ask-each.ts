import pLimit from 'p-limit'
import {codeOf, isOfKind, LoantapeError} from '../core/errors.ts'
import {isObject, listRepeated} from '../core/json.ts'
import type {Progress, Received, WireRecord, World} from '../core/types.ts'
import type {SourceClient} from './client.ts'
import {isGone, type Page, readAhead, walkPages} from './walk-pages.ts'

type Client = Pick<SourceClient, 'getJson'>

/** Asks for records one by one, or for their lists. `step` and `unit` name them in the progress. */
export interface EachRequest<Found> extends Required<Pick<Progress, 'step' | 'unit'>> {
  /** The first should be known to exist: a 404 means `gone` only if the path answers for some id in this run, otherwise `failed`. */
  ids: readonly string[]
  /** Relative to the base URL; `{id}` stands for a record's id. */
  path: string
  /** The client's requests are cancelled when asking ends; {@link askEach} judges the errors. */
  ask: (id: string, path: string, client: Client) => Promise<EachAnswer<Found>>
  concurrency: number
  budgetMs: number
}

/** `Found` is the content of the answer. */
export type EachAnswer<Found> =
  | ({id: string; outcome: 'found'} & Found)
  /** 404 or 410 from a path that answered for another id in this run. */
  | {id: string; outcome: 'gone'; received?: Received}
  /** `reason` is for people: `status 422`, or the code of an error, such as `SOURCE_FAILING`. */
  | {id: string; outcome: 'failed'; reason: string}

/** `failing`: too many failures in a row, so the path may not exist or the key may not read it. */
type EachEnd = 'done' | 'budget' | 'interrupted' | 'rate_limited' | 'failing'

/** `proven`: the path answered for some id. */
export type EachSummary = {proven: boolean; fetched: number; gone: number; failed: number; ended: EachEnd}

export const MOST_FAILURES_IN_A_ROW = 5
/** Outstanding answers, as a multiple of the concurrency, so that a slow one does not hold up the others. */
const WINDOW = 2

/**
 * Asks for one id at a time until the path has answered for one, then for several at once. Hands over the answers in the order
 * of the ids, each after the last was taken. A failure of the source is an outcome; a clock that steps back throws.
 */
export async function askEach<Found>(
  {ids, ask, ...request}: EachRequest<Found>,
  client: Client & Progress['source'],
  take: (answer: EachAnswer<Found>) => void | Promise<void>,
  {log, onProgress}: Pick<World, 'log' | 'onProgress'>,
): Promise<EachSummary> {
  const summary: EachSummary = {proven: false, fetched: 0, gone: 0, failed: 0, ended: 'done'}
  const {step, unit} = request
  const report = () => {
    const done = summary.fetched + summary.gone + summary.failed
    onProgress({step, unit, done, total: ids.length, source: client})
  }
  report()
  if (request.budgetMs <= 0) return {...summary, ended: 'budget'}
  const consumer = new AbortController()
  // `AbortSignal.any` holds its sources weakly: a timeout that nothing else holds may never come.
  const budget = AbortSignal.timeout(Math.ceil(request.budgetMs))
  const signal = AbortSignal.any([consumer.signal, budget])
  const cancellable: Client = {
    getJson: (path, query, own) => client.getJson(path, query, own ? AbortSignal.any([own, signal]) : signal),
  }
  const limit = pLimit(request.concurrency)
  const window: Promise<EachAnswer<Found> | EachEnd>[] = []
  const unproven: EachAnswer<Found>[] = []
  let failuresInARow = 0

  let isTold = false
  function tell(said: {code?: string; reason: string}, level: 'warn' | 'info'): void {
    log[level]({path: request.path, ...said}, 'a detail could not be fetched')
    isTold = true
  }

  async function handOver(answer: EachAnswer<Found>): Promise<void> {
    summary[answer.outcome === 'found' ? 'fetched' : answer.outcome] += 1
    report()
    // The first tells why; others are often the same.
    if (answer.outcome === 'failed' && !isTold) tell({reason: answer.reason}, 'warn')
    await take(answer)
  }

  async function takeAnswer(answer: EachAnswer<Found>): Promise<void> {
    if (answer.outcome === 'found') summary.proven = true
    const isFailure = answer.outcome === 'failed' || !summary.proven
    failuresInARow = isFailure ? failuresInARow + 1 : 0
    if (failuresInARow === MOST_FAILURES_IN_A_ROW) summary.ended = 'failing'
    if (!summary.proven && answer.outcome === 'gone') {
      unproven.push(answer)
      return
    }
    for (const one of [...(summary.proven ? unproven.splice(0) : []), answer]) await handOver(one)
  }

  async function drainWindow(most: number): Promise<void> {
    while (window.length > most && summary.ended === 'done') {
      const answer = (await window.shift()) ?? 'done'
      if (typeof answer === 'string') summary.ended = answer
      else await takeAnswer(answer)
    }
  }

  async function askForOne(id: string): Promise<EachAnswer<Found> | EachEnd> {
    try {
      const path = request.path.replaceAll('{id}', () => encodeSegment(id))
      return await ask(id, path, cancellable)
    } catch (error) {
      if (error instanceof URIError) return failedAs(id, 'an id that no path can hold')
      if (signal.aborted && error === signal.reason) return 'budget'
      if (!(error instanceof LoantapeError) || error.code === 'CLOCK_STEPPED') throw error
      const isUrgent = isOfKind(error, 'auth') || !isTold
      tell({code: error.code, reason: error.problem}, isUrgent ? 'warn' : 'info')
      if (error.code === 'INTERRUPTED') return 'interrupted'
      if (error.code === 'SOURCE_RATE_LIMITED') return 'rate_limited'
      return failedAs(id, error.code)
    }
  }

  let isCut = false
  try {
    for (const id of ids) {
      isCut = budget.aborted
      if (isCut || summary.ended !== 'done') break
      window.push(readAhead(limit(() => askForOne(id))))
      await drainWindow(summary.proven ? request.concurrency * WINDOW - 1 : 0)
    }
    await drainWindow(0)
    if (isCut && summary.ended === 'done') summary.ended = 'budget'
    for (const {id} of unproven) await handOver(failedAs(id, 'only 404 or 410, for each id asked for'))
    return summary
  } finally {
    consumer.abort()
    await Promise.allSettled(window)
  }
}

function failedAs(id: string, reason: string): {id: string; outcome: 'failed'; reason: string} {
  return {id, outcome: 'failed', reason}
}

/** @throws URIError for `.` and `..`, which lead to another path, and for lone surrogates */
function encodeSegment(id: string): string {
  if (id === '.' || id === '..') throw new URIError('a dot segment')
  return encodeURIComponent(id)
}

export type DetailAnswer = EachAnswer<{record: WireRecord; received: Received}>

export async function askOwnPage(id: string, path: string, client: Client): Promise<DetailAnswer> {
  const {status, body, received} = await client.getJson(path)
  if (isGone(status)) return {id, outcome: 'gone', received}
  if (status !== 200) return failedAs(id, `status ${status}`)
  const isTwice = listRepeated(body).some(([name, ...rest]) => name === 'data' && rest.length === 0)
  const record = isObject(body) && !isTwice ? body.data : undefined
  if (!isObject(record)) return failedAs(id, "no record in its 'data'")
  if (record.id !== id) return failedAs(id, 'the record of another id')
  return {id, outcome: 'found', record, received}
}

/** Complete or not at all. */
export type ListingAnswer = EachAnswer<{pages: Page[]}>

/** Larger lists of one record are refused, because they are held in memory. */
const MOST_PAGES = 100
const MOST_LENGTH = 32_000_000

/** A list that is not read to its end fails as a whole. */
export function createListAsker(pageSize: number) {
  return async (id: string, path: string, client: Client): Promise<ListingAnswer> => {
    const pages: Page[] = []
    let length = 0
    try {
      for await (const page of walkPages({path, pageSize}, client)) {
        length += page.received.body.length
        if (pages.length === MOST_PAGES || length > MOST_LENGTH) return failedAs(id, 'too long a list')
        pages.push(page)
      }
    } catch (error) {
      if (codeOf(error) !== 'SOURCE_NOT_FOUND') throw error
      return {id, outcome: 'gone'}
    }
    return {id, outcome: 'found', pages}
  }
}
