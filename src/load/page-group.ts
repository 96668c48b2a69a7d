import {BIGINT, type DuckDBType, TIMESTAMP, VARCHAR} from '@duckdb/node-api'
import type {Stream} from '../contract/stream.ts'
import type {ColumnValue, NormalisedPage, Page} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {allowWidth} from '../warehouse/load-memory.ts'
import {appendRows} from '../warehouse/row-buffer.ts'
import {type RejectedRecord, storeQuarantined} from './quarantine.ts'
import {createStagedRows} from './stream-tables.ts'

/** Pages that are stored together. */
export interface PageGroup {
  readonly pages: number
  readonly records: number
  /** Length of the answers' texts. */
  readonly length: number
  readonly quarantined: readonly RejectedRecord[]
  /** The last page, without its records; undefined while the group is empty. */
  readonly last: Omit<Page, 'records' | 'received'> | undefined
  /** Takes a page in, column by column: its records need not stay in memory until they are stored. */
  add(page: Page, normalised: NormalisedPage): void
  /** Stores the pages and what became of their records. */
  store(db: Database): Promise<void>
}

const pageTypes: DuckDBType[] = [VARCHAR, BIGINT, VARCHAR, BIGINT, TIMESTAMP]

/**
 * Creates an empty group.
 *
 * @param pagesBefore pages of the walk that come before this group
 */
export function createPageGroup(
  stream: Stream,
  walk: {walkId: string; businessDate: string},
  pagesBefore: number,
): PageGroup {
  const staged = createStagedRows(stream)
  const pages: ColumnValue[][] = []
  const quarantined: RejectedRecord[] = []
  let recordCount = 0
  let length = 0
  let last: PageGroup['last']
  return {
    quarantined,
    get pages() {
      return pages.length
    },
    get records() {
      return recordCount
    },
    get length() {
      return length
    },
    get last() {
      return last
    },
    add({records, received, ...page}, normalised) {
      const pageNo = pagesBefore + pages.length + 1
      pages.push([walk.walkId, BigInt(pageNo), page.cursor, BigInt(records.length), page.observedAt])
      recordCount += records.length
      length += page.length
      last = page
      normalised.observations.forEach((observation, position) => {
        staged.push(observation, {source: 'list', pageNo, position})
      })
      normalised.quarantined.forEach((record, position) => {
        quarantined.push({...record, place: `${pageNo}/${position}`})
      })
    },
    async store(db) {
      await allowWidth(db, length / Math.max(1, recordCount))
      await staged.append(db)
      await appendRows(db, {catalog: 'warehouse', schema: 'raw', table: 'page', types: pageTypes}, pages)
      await storeQuarantined(db, stream, walk, 'list', quarantined)
    },
  }
}
