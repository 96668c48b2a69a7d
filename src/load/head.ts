import type {Stream} from '../contract/stream.ts'
import type {Database} from '../warehouse/database.ts'
import {inParts, partOf} from './parts.ts'
import {tablesOf} from './stream-tables.ts'

/** Makes the latest states of a stream anew, from its versions alone. */
export async function rebuildHead(db: Database, stream: Stream): Promise<void> {
  const {head, version} = tablesOf(stream)
  await db.run(`delete from ${head}`)
  await inParts(db, [version], () => db.run(`insert into ${head} by name ${buildHeadSql(stream)}`))
}

/** SQL of the latest states of the part under way: a field that was absent has its last present value. */
function buildHeadSql(stream: Stream): string {
  const {idColumn} = stream
  const columns = stream.columns.map(({name, mayBeAbsent}) =>
    mayBeAbsent
      ? `last_value(case when ${name}_present then {'it': ${name}} end ignore nulls) over so_far as ${name}`
      : name,
  )
  const values = stream.columns.map(({name, mayBeAbsent}) => (mayBeAbsent ? `${name}.it as ${name}` : name))
  return `
    with carried as (
      select
        ${idColumn},
        kind,
        walk_id,
        observed_at,
        business_date,
        row_hash,
        list_hash,
        ${columns.join(', ')},
        max(observed_at) filter (where source in ('detail', 'webhook')) over so_far as detail_at,
        row_number() over (partition by ${idColumn} order by observed_at desc, seq desc) as recency
      from ${partOf(tablesOf(stream).version, stream)}
      window so_far as (partition by ${idColumn} order by observed_at, seq)
    )
    select
      ${idColumn},
      kind,
      walk_id,
      observed_at,
      business_date,
      row_hash,
      list_hash,
      ${values.join(', ')},
      detail_at
    from carried
    where recency = 1`
}
