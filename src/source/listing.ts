import {createSeenIds} from '../contract/seen-ids.ts'
import {ContractError} from '../errors.ts'
import type {Page, World} from '../types.ts'
import {askEach, type EachAnswer, type EachRequest, type EachSummary, failedAs} from './ask-each.ts'
import type {SourceClient} from './client.ts'
import {walkPages} from './walk-pages.ts'

/** What became of one record's list: every page of it, or nothing. */
export type ListingAnswer = EachAnswer<{pages: Page[]}>

/** The list of one record is held in memory: one that goes on beyond this is none. */
const MOST_PAGES = 100
const MOST_LENGTH = 32_000_000

/**
 * Reads the lists of single records to their ends and hands them out in the order of the ids, see {@link askEach}. A list
 * that could not be read to its end has failed as a whole.
 *
 * @returns the summary, as the generator's return value
 */
export function fetchListings(
  ids: Iterable<string>,
  request: EachRequest & {pageSize: number; idField: string},
  client: Pick<SourceClient, 'getJson'>,
  world: Pick<World, 'log' | 'clock'>,
): AsyncGenerator<ListingAnswer, EachSummary, undefined> {
  const {pageSize, idField} = request
  return askEach(
    ids,
    request,
    async (id, path, signal): Promise<ListingAnswer> => {
      const cancellable: Pick<SourceClient, 'getJson'> = {
        getJson: (target, query, own) =>
          client.getJson(target, query, own ? AbortSignal.any([own, signal]) : signal),
      }
      const pages: Page[] = []
      let length = 0
      try {
        const fresh = {cursor: null, seenCursors: [], seenIds: createSeenIds(), envelope: null}
        const walk = {path, ...fresh, pageSize, idField}
        for await (const page of walkPages(walk, cancellable, world)) {
          length += page.length
          if (pages.length === MOST_PAGES || length > MOST_LENGTH) return failedAs(id, 'TOO_MANY_PAGES')
          pages.push(page)
        }
      } catch (error) {
        if (!(error instanceof ContractError && error.code === 'SOURCE_NOT_FOUND')) throw error
        return {id, outcome: 'gone', status: 404, observedAt: BigInt(world.clock.now()) * 1000n}
      }
      return {id, outcome: 'found', pages}
    },
    world,
  )
}
