import type {Stream} from '../contract/stream.ts'
import type {Database} from '../store/database.ts'
import {amountOf, buildListHashSql} from '../sync/stream-tables.ts'

/** Fills the temporary table `repeated` with the ids of the records that were staged more than once. */
export async function findRepeated(db: Database, {idColumn}: Stream, staged: string): Promise<void> {
  await db.run(
    `create or replace temp table repeated as
     select ${idColumn} from ${staged} group by ${idColumn} having count(*) > 1`,
  )
}

/** Makes the temporary view `incoming`, a row for each staged record, and what it reads. */
export async function createIncoming(db: Database, stream: Stream, staged: string): Promise<void> {
  await findRepeated(db, stream, staged)
  await db.run(buildIncomingSql(stream, staged))
}

/** Drops what {@link createIncoming} made. */
export async function dropIncoming(db: Database): Promise<void> {
  await db.run('drop view temp.incoming; drop table temp.repeated')
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
