import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import type {Certificate} from '../types.ts'
import {type Database, inTransaction} from '../warehouse/database.ts'
import {withEnoughMemory} from '../warehouse/load-memory.ts'
import {findRepeated} from './incoming.ts'
import {amountOf, tablesOf} from './stream-tables.ts'
import type {OpenWalk} from './walk-state.ts'

const totalsRow = z.object({
  listed: z.coerce.number(),
  distinct: z.coerce.number(),
  amountTotal: z.string(),
})

/**
 * Stores the certificate of a walk whose last page has been stored: what it saw, as counts, the amount total and the
 * digest of its cursor chain. Of records seen twice the later request counts.
 */
export async function certifyWalk(db: Database, stream: Stream, walk: OpenWalk): Promise<Certificate> {
  const {listed, distinct, amountTotal} = await withEnoughMemory(db, () => readTotals(db, stream))
  const duplicates = listed - distinct
  await inTransaction(db, () =>
    db.run(
      `update warehouse.raw.walk set
         distinct_records = $2,
         duplicates = $3,
         amount_total = $4::decimal(38,2),
         is_shifted = $5,
         ended_how = 'complete',
         cursor_digest = (
           select sha256(string_agg(coalesce(cursor, ''), chr(10) order by page_no))
           from warehouse.raw.page where walk_id = $1
         )
       where walk_id = $1`,
      [walk.walkId, distinct, duplicates, amountTotal, duplicates > 0],
    ),
  )
  return {
    walkId: walk.walkId,
    businessDate: walk.businessDate,
    pages: walk.pages,
    records: walk.records,
    distinct,
    duplicates,
    quarantined: walk.quarantined,
    amountTotal,
    resumed: walk.resumed,
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
