import {z} from 'zod'
import {newError} from '../errors.ts'
import type {OpenWalk} from '../load/walk-state.ts'
import type {Database} from '../warehouse/database.ts'

/** A walk may have this many bad records whatever their share. */
const TOLERATED_RECORDS = 3
const TOLERATED_PCT = 5

/**
 * Refuses a walk too many of whose records could not be read: then the source changed, not the records.
 *
 * @throws ContractError `SOURCE_QUARANTINE` naming the most frequent places
 */
export async function requireBoundedQuarantine(db: Database, walk: OpenWalk): Promise<void> {
  const {quarantined, records} = walk
  if (quarantined <= TOLERATED_RECORDS || quarantined * 100 <= records * TOLERATED_PCT) return
  const places = await db.all(
    z.object({path: z.string(), reason: z.string(), records: z.string()}),
    `select path, any_value(reason) as reason, count(*) as records from temp.staged_quarantine
     where walk_id = $1 group by path order by count(*) desc, path limit 3`,
    [walk.walkId],
  )
  const worst = places.map((place) => `${place.path} (${place.records}: ${place.reason})`).join('; ')
  throw newError(
    'SOURCE_QUARANTINE',
    `${quarantined} of ${records} records could not be read, more than ${TOLERATED_PCT} %: ${worst}.`,
  )
}
