import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import type {Certificate} from '../types.ts'
import {type Database, inTransaction} from '../warehouse/database.ts'
import {amountOf, tablesOf} from './stream-tables.ts'
import type {OpenWalk} from './walk-state.ts'

const totalsRow = z.object({
  listed: z.coerce.number(),
  distinct_records: z.coerce.number(),
  amount_total: z.string(),
})

/**
 * Stores the certificate of a walk whose last page has been stored: what it saw, as counts, the amount total and the
 * digest of its cursor chain. Of records seen twice the later request counts.
 */
export async function certifyWalk(db: Database, stream: Stream, walk: OpenWalk): Promise<Certificate> {
  const {staged} = tablesOf(stream)
  const totals = await db.one(
    totalsRow,
    `with listed as (
       select ${stream.idColumn} as id, ${amountOf(stream)} as amount, observed_at, page_no, position
       from ${staged}
       where source = 'list'
     ),
     latest as (
       select id, arg_max(amount, (observed_at, page_no, position)) as amount
       from listed
       group by id
     )
     select
       (select count(*) from listed) as listed,
       (select count(*) from latest) as distinct_records,
       (select coalesce(sum(amount), 0)::decimal(38,2) from latest) as amount_total`,
  )
  const {listed, distinct_records: distinct, amount_total: amountTotal} = totals
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
