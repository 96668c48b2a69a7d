import {newError} from '../errors.ts'
import {isObject} from '../json.ts'
import type {PageBody} from './envelope.ts'
import type {SeenIds} from './seen-ids.ts'

/** Pages in a row without a record that is new. */
const MOST_STALE_PAGES = 3

/**
 * Follows a list from where it has been read to, and makes sure that it leads on.
 *
 * @param name for words in errors: `GET /deals`
 * @param cursors those met so far; null stands for the first page
 * @param seenIds the ids of the records met so far; those of the pages are added
 * @param idField the field of a record that holds its id
 * @param mostIds a list that goes on beyond so many does not end
 */
export function createListProgress({
  name,
  cursors,
  seenIds,
  idField,
  mostIds = Number.POSITIVE_INFINITY,
}: {
  name: string
  cursors: Iterable<string | null>
  seenIds: SeenIds
  idField: string
  mostIds?: number | undefined
}) {
  const seen = new Set(cursors)
  seen.delete(null)
  let stalePages = 0
  return {
    /**
     * Takes in the next page.
     *
     * @throws ContractError `SOURCE_CURSOR_LOOP`, `SOURCE_ENDLESS`
     */
    take({records, nextCursor}: PageBody): void {
      const news = records.filter((record) => seenIds.add(idOf(record, idField)))
      stalePages = news.length > 0 ? 0 : stalePages + 1
      if (nextCursor === null) return
      if (seen.has(nextCursor))
        throw newError(
          'SOURCE_CURSOR_LOOP',
          `Next cursor of ${name} was met before among the ${seen.size} of this walk: expected one that leads on.`,
        )
      if (stalePages === MOST_STALE_PAGES) {
        const isEmpty = records.length === 0
        throw newError(
          'SOURCE_CURSOR_LOOP',
          `${MOST_STALE_PAGES} pages in a row of ${name} hold no record that is new${isEmpty ? ', the last none at all' : ''}, and each names another cursor: expected a list that leads on.`,
        )
      }
      if (seenIds.size > mostIds)
        throw newError(
          'SOURCE_ENDLESS',
          `${seenIds.size} records of ${name} so far, and it goes on: expected a list of at most ${mostIds}.`,
        )
      seen.add(nextCursor)
    },
  }
}

/** The id of a record; the whole of it where there is none. */
function idOf(record: unknown, idField: string): string {
  const id = isObject(record) && record[idField]
  return typeof id === 'string' ? id : JSON.stringify(record)
}
