import type {Stream} from '../contract/stream.ts'
import type {Database} from '../store/database.ts'
import {amountOf, buildListHashSql} from '../sync/stream-tables.ts'

/** Makes the temporary view `incoming`, a row for each staged record, and the table `repeated` of the ids that were staged more than once. */
export function createIncoming(db: Database, stream: Stream, staged: string): Promise<void> {
  const {idColumn} = stream
  return db.run(
    `create or replace temp table repeated as
     select ${idColumn} from ${staged} group by ${idColumn} having count(*) > 1;
     ${buildIncomingSql(stream, staged)}`,
  )
}

/**
 * The latest staged row of each record; under one instant the record's own page counts after the list. Only records that
 * were staged more than once are ordered.
 */
function buildIncomingSql(stream: Stream, staged: string): string {
  const {idColumn} = stream
  const latestFirst = `observed_at desc, (source <> 'list') desc, page_no desc, position desc`
  const isListed = `source in ('list', 'replay')`
  const listedAmount = `case when source = 'list' then ${amountOf(stream)} end`
  const listHash = `case when source = 'list' then ${buildListHashSql(stream)} end`
  return `
    create or replace temp view incoming as
    select
      *,
      ${isListed} as is_listed,
      ${listedAmount} as listed_amount,
      ${listHash} as list_hash
    from ${staged}
    anti join temp.repeated using (${idColumn})
    union all
    select
      *,
      bool_or(${isListed}) over same_record as is_listed,
      first_value(${listedAmount} ignore nulls) over latest_first as listed_amount,
      first_value(${listHash} ignore nulls) over latest_first as list_hash
    from ${staged}
    semi join temp.repeated using (${idColumn})
    window
      same_record as (partition by ${idColumn}),
      latest_first as (
        partition by ${idColumn}
        order by ${latestFirst}
        rows between unbounded preceding and unbounded following
      )
    qualify row_number() over (partition by ${idColumn} order by ${latestFirst}) = 1`
}
