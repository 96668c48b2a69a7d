import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import type {Database} from '../store/database.ts'

/**
 * The records that a planned walk found changed since it was last looked: new, other than before, back, or newly absent.
 * One that was missing already and is now confirmed gone changed earlier.
 */
export async function* listChangedIds(db: Database, {idColumn}: Stream): AsyncGenerator<string> {
  const rows = db.stream(
    `select ${idColumn} from temp.change where is_listed and content not in ('unchanged', 'respelled')
     union all
     select ${idColumn} from temp.absence where head_kind = 'seen'`,
  )
  for await (const ids of rows) yield* ids.map(String)
}

/** The last walk that was applied. */
export async function findLastAppliedWalk(db: Database, {name}: Stream): Promise<string | null> {
  const {walk_id} = await db.one(
    z.object({walk_id: z.string().nullable()}),
    `select arg_max(walk_id, recorded_at) as walk_id from warehouse.raw.walk
     where stream = $1 and state = 'applied'`,
    [name],
  )
  return walk_id
}
