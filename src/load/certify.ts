import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import type {Certificate} from '../types.ts'
import {type Database, inTransaction} from '../warehouse/database.ts'
import {withEnoughMemory} from '../warehouse/load-memory.ts'
import {inParts, isInPart} from './parts.ts'
import {amountOf, tablesOf} from './stream-tables.ts'
import type {OpenWalk} from './walk-state.ts'

const totalsRow = z.object({
  distinct_records: z.coerce.number(),
  duplicates: z.coerce.number(),
  amount_total: z.string(),
})

/**
 * Stores the certificate of a walk whose last page has been stored: what it saw, as counts, the amount total and the
 * digest of its cursor chain. Of records seen twice the later request counts.
 */
export async function certifyWalk(db: Database, stream: Stream, walk: OpenWalk): Promise<Certificate> {
  const store = async () => {
    await db.run(
      `update warehouse.raw.walk set
         distinct_records = 0,
         duplicates = 0,
         amount_total = 0,
         ended_how = 'complete',
         cursor_digest = (
           select sha256(string_agg(coalesce(cursor, ''), chr(10) order by page_no))
           from warehouse.raw.page where walk_id = $1
         )
       where walk_id = $1`,
      [walk.walkId],
    )
    await inParts(db, [tablesOf(stream).staged], () => db.run(buildTotalsSql(stream), [walk.walkId]))
    await db.run('update warehouse.raw.walk set is_shifted = duplicates > 0 where walk_id = $1', [
      walk.walkId,
    ])
  }
  await withEnoughMemory(db, () => inTransaction(db, store))
  const totals = await db.one(
    totalsRow,
    'select distinct_records, duplicates, amount_total from warehouse.raw.walk where walk_id = $1',
    [walk.walkId],
  )
  return {
    walkId: walk.walkId,
    businessDate: walk.businessDate,
    pages: walk.pages,
    records: walk.records,
    distinct: totals.distinct_records,
    duplicates: totals.duplicates,
    quarantined: walk.quarantined,
    amountTotal: totals.amount_total,
    resumed: walk.resumed,
  }
}

/** SQL that adds the records of the part under way to the certificate `$1`. */
function buildTotalsSql(stream: Stream): string {
  const {idColumn} = stream
  return `
    update warehouse.raw.walk set
      distinct_records = walk.distinct_records + totals.distinct_records,
      duplicates = walk.duplicates + totals.listed - totals.distinct_records,
      amount_total = walk.amount_total + totals.amount_total
    from (
      with latest as (
        select
          count(*) as listed,
          arg_max(${amountOf(stream)}, (observed_at, page_no, position)) as amount
        from ${tablesOf(stream).staged}
        where source = 'list' and ${isInPart(idColumn)}
        group by ${idColumn}
      )
      select
        coalesce(sum(listed), 0) as listed,
        count(*) as distinct_records,
        coalesce(sum(amount), 0) as amount_total
      from latest
    ) as totals
    where walk.walk_id = $1`
}
