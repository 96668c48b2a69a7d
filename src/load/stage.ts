import type {Stream} from '../contract/stream.ts'
import {STREAMS} from '../contract/streams.ts'
import type {Database} from '../warehouse/database.ts'
import {createStaged, tablesOf} from './stream-tables.ts'

/**
 * Makes the stage: tables in memory that hold what walks have read, until it becomes history. What a run leaves there is gone
 * with it; the next one reads it again from the tape.
 */
export async function createStage(db: Database): Promise<void> {
  for (const stream of STREAMS) await createStaged(db, stream)
  for (const table of ['listing', 'quarantine']) {
    await db.run(`create or replace temp table staged_${table} as from warehouse.raw.${table} limit 0`)
  }
}

/** Takes a walk's rows off the stage. */
export async function clearStage(db: Database, stream: Stream, walkId: string): Promise<void> {
  await db.run(`delete from ${tablesOf(stream).staged}`)
  await db.run('delete from temp.staged_listing where walk_id = $1', [walkId])
  await db.run('delete from temp.staged_quarantine where walk_id = $1', [walkId])
}
