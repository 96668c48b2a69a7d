import type {Stream} from '../contract/stream.ts'
import type {NormalisedPage, Page} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {type RejectedRecord, stageQuarantined} from './quarantine.ts'
import {createStagedRows} from './stream-tables.ts'

/** Pages that are stored together. */
export interface PageGroup {
  readonly pages: number
  /** What they were asked with; empty of the first page. */
  readonly cursors: readonly string[]
  readonly records: number
  /** Length of the answers' texts. */
  readonly length: number
  readonly quarantined: readonly RejectedRecord[]
  /** The last page, without its records; undefined while the group is empty. */
  readonly last: Omit<Page, 'records' | 'received'> | undefined
  /** Takes a page in, column by column: its records need not stay in memory as they came. */
  add(page: Omit<Page, 'received'>, normalised: NormalisedPage): void
  /** Stages what became of the records. */
  stage(db: Database): Promise<void>
}

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
  const cursors: string[] = []
  const quarantined: RejectedRecord[] = []
  let recordCount = 0
  let length = 0
  let last: PageGroup['last']
  return {
    cursors,
    quarantined,
    get pages() {
      return cursors.length
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
    add({records, ...page}, normalised) {
      cursors.push(page.cursor ?? '')
      const pageNo = pagesBefore + cursors.length
      recordCount += records.length
      length += page.length
      last = page
      normalised.observations.forEach((observation, position) => {
        staged.push(observation, {source: 'list', pageNo, position})
      })
      quarantined.push(
        ...normalised.quarantined.map((record) => ({...record, place: `${pageNo}/${record.position}`})),
      )
    },
    async stage(db) {
      await staged.append(db)
      await stageQuarantined(db, stream, walk, 'list', quarantined)
    },
  }
}
