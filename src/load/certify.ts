import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import type {Certificate} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {findRepeated} from './incoming.ts'
import {amountOf, tablesOf} from './stream-tables.ts'
import type {OpenWalk} from './walk-state.ts'

const totalsRow = z.object({
  listed: z.coerce.number(),
  distinct: z.coerce.number(),
  amountTotal: z.string(),
})

/**
 * Certifies a walk that was read to its end: what it saw, as counts and the total of the amounts. Of records seen twice the
 * later request counts.
 */
export async function certifyWalk(db: Database, stream: Stream, walk: OpenWalk): Promise<Certificate> {
  const {listed, distinct, amountTotal} = await readTotals(db, stream)
  walk.certified = {distinct, duplicates: listed - distinct, amountTotal}
  return {
    walkId: walk.walkId,
    businessDate: walk.businessDate,
    pages: walk.pages,
    records: walk.records,
    quarantined: walk.quarantined,
    resumed: walk.resumed,
    ...walk.certified,
  }
}

/** What was listed; of records seen twice the later request counts, and only these are put in order. */
async function readTotals(db: Database, stream: Stream): Promise<z.output<typeof totalsRow>> {
  const {idColumn} = stream
  const {staged} = tablesOf(stream)
  await findRepeated(db, stream, staged)
  const totals = await db.one(
    totalsRow,
    `with listed as not materialized (
       select ${idColumn}, ${amountOf(stream)} as amount, observed_at, page_no, position
       from ${staged}
       where source = 'list'
     ),
     latest as (
       select amount from listed anti join temp.repeated using (${idColumn})
       union all
       select arg_max(amount, (observed_at, page_no, position))
       from listed
       semi join temp.repeated using (${idColumn})
       group by ${idColumn}
     )
     select
       (select count(*) from listed) as listed,
       count(*) as "distinct",
       coalesce(sum(amount), 0)::decimal(38,2) as "amountTotal"
     from latest`,
  )
  await db.run('drop table temp.repeated')
  return totals
}
