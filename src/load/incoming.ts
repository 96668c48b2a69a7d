import type {Stream} from '../contract/stream.ts'
import type {Database} from '../warehouse/database.ts'
import {createTempTable, inParts, isInPart, partOf} from './parts.ts'
import {amountOf, buildListHashSql} from './stream-tables.ts'

/** Fills the temporary table `repeated` with the ids of the records that were staged more than once. */
export async function findRepeated(db: Database, {idColumn}: Stream, staged: string): Promise<void> {
  const repeated = `select ${idColumn} from ${staged} where ${isInPart(idColumn)} group by ${idColumn} having count(*) > 1`
  await createTempTable(db, 'repeated', repeated)
  await inParts(db, [staged], () => db.run(`insert into temp.repeated ${repeated}`))
}

/** Makes the temporary view `incoming`, a row for each staged record of the part under way, and what it reads. */
export async function createIncoming(db: Database, stream: Stream, staged: string): Promise<void> {
  await findRepeated(db, stream, staged)
  await db.run(buildIncomingSql(stream, staged))
}

/** Drops what {@link createIncoming} made. */
export async function dropIncoming(db: Database): Promise<void> {
  await db.run('drop view temp.incoming; drop table temp.repeated')
}

/**
 * The latest staged row of each record of the part under way; under one instant the record's own page counts after the
 * list. Only records that were staged more than once are ordered.
 */
function buildIncomingSql(stream: Stream, staged: string): string {
  const {idColumn} = stream
  const latestFirst = `observed_at desc, (source <> 'list') desc, page_no desc, position desc`
  const isListed = `source in ('list', 'replay')`
  const listedAmount = `case when source = 'list' then ${amountOf(stream)} end`
  const listHash = `case when source = 'list' then ${buildListHashSql(stream)} end`
  const rows = partOf(staged, stream)
  const repeated = partOf('temp.repeated', stream)
  return `
    create or replace temp view incoming as
    select
      *,
      ${isListed} as is_listed,
      ${listedAmount} as listed_amount,
      ${listHash} as list_hash
    from ${rows}
    anti join ${repeated} using (${idColumn})
    union all
    select
      *,
      bool_or(${isListed}) over same_record as is_listed,
      first_value(${listedAmount} ignore nulls) over latest_first as listed_amount,
      first_value(${listHash} ignore nulls) over latest_first as list_hash
    from ${rows}
    semi join ${repeated} using (${idColumn})
    window
      same_record as (partition by ${idColumn}),
      latest_first as (
        partition by ${idColumn}
        order by ${latestFirst}
        rows between unbounded preceding and unbounded following
      )
    qualify row_number() over (partition by ${idColumn} order by ${latestFirst}) = 1`
}
