import type {Stream} from '../contract/stream.ts'
import type {NormalisedPage, Page} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {type RejectedRecord, stageQuarantined} from './quarantine.ts'
import {createStagedRows} from './stream-tables.ts'
import type {OpenWalk} from './walk-state.ts'

/** Pages that are staged together. */
export interface PageGroup {
  readonly pages: number
  readonly records: number
  /** Length of the answers' texts. */
  readonly length: number
  /** Takes a page in, column by column: its records need not stay in memory as they came. */
  add(page: Omit<Page, 'received'>, normalised: NormalisedPage): void
  /** Stages what became of the records; the walk stands behind the last page then. Without pages nothing changes. */
  stage(db: Database, waitedMs: number): Promise<void>
}

/**
 * Creates an empty group.
 *
 * @param pagesBefore pages of the walk that come before this group
 */
export function createPageGroup(stream: Stream, walk: OpenWalk, pagesBefore: number = walk.pages): PageGroup {
  const staged = createStagedRows(stream)
  const cursors: string[] = []
  const quarantined: RejectedRecord[] = []
  let recordCount = 0
  let length = 0
  let last: Omit<Page, 'records' | 'received'> | undefined
  return {
    get pages() {
      return cursors.length
    },
    get records() {
      return recordCount
    },
    get length() {
      return length
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
    async stage(db, waitedMs) {
      if (!last) return
      await staged.append(db)
      await stageQuarantined(db, stream, walk, 'list', quarantined)
      walk.cursors.push(...cursors)
      walk.nextCursor = last.nextCursor
      walk.cursorReceivedAt = BigInt(last.receivedAt) * 1000n
      walk.envelope = last.envelope
      walk.endedAt = last.observedAt
      walk.isComplete = last.nextCursor === null
      walk.pages += cursors.length
      walk.records += recordCount
      walk.quarantined += quarantined.length
      walk.unreadableIds += quarantined.filter(({id}) => id === null).length
      walk.waitedMs = waitedMs
    },
  }
}
