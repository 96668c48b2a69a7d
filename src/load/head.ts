import {DuckDBTimestampValue} from '@duckdb/node-api'
import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import {STREAMS} from '../contract/streams.ts'
import type {Database} from '../warehouse/database.ts'
import {buildRowHashSql, tablesOf} from './stream-tables.ts'

/** Makes the latest states of a stream anew, from its versions alone. */
export async function rebuildHead(db: Database, stream: Stream): Promise<void> {
  const {head} = tablesOf(stream)
  await db.run(`delete from ${head}`)
  await db.run(`insert into ${head} by name ${buildHeadSql(stream)}`)
}

/**
 * Carries on to the latest states what `change` says of earlier instants: the fields a later observation left out, and
 * all of those of a record that has been absent since.
 */
export async function carryLate(db: Database, stream: Stream): Promise<void> {
  const {has_late} = await db.one(
    z.object({has_late: z.boolean()}),
    'select exists (from temp.change where is_late) as has_late',
  )
  if (!has_late) return
  const {head} = tablesOf(stream)
  const {idColumn} = stream
  const carried = [...stream.columns.map(({name}) => name), 'row_hash']
  const late = `${idColumn} in (select ${idColumn} from temp.change where is_late)`
  await db.run(
    `update ${head} as head set ${carried.map((name) => `${name} = made.${name}`).join(', ')}
     from (${buildHeadSql(stream, late)}) as made
     where head.${idColumn} = made.${idColumn}`,
  )
}

/** Records that count as present: those listed last, and missing ones. */
export async function countPresent(db: Database, stream: Stream): Promise<number> {
  const {present} = await db.one(
    z.object({present: z.coerce.number()}),
    `select count(*) as present from ${tablesOf(stream).head} where kind in ('seen', 'missing')`,
  )
  return present
}

/** The latest instant at which anything that is applied was asked for, microseconds since the epoch. */
export async function findLastObserved(db: Database): Promise<bigint | null> {
  const heads = STREAMS.map(
    (stream) => `(select max(greatest(observed_at, detail_at)) from ${tablesOf(stream).head})`,
  )
  const {last} = await db.one(
    z.object({last: z.coerce.bigint().nullable()}),
    `select epoch_us(greatest(
       ${heads.join(',\n       ')},
       (select max(ended_at) from warehouse.raw.walk where state = 'applied')
     )) as last`,
  )
  return last
}

/** The records whose latest state was observed after `instant` (microseconds since the epoch), in the order of their ids. */
export async function listHeadsAfter(db: Database, stream: Stream, instant: bigint): Promise<string[]> {
  const {idColumn} = stream
  const rows = await db.all(
    z.object({id: z.string()}),
    `select ${idColumn} as id from ${tablesOf(stream).head}
     where greatest(observed_at, detail_at) > $1 order by id`,
    [new DuckDBTimestampValue(instant)],
  )
  return rows.map(({id}) => id)
}

/** SQL of the latest states: what an observation left out, and an absence all, was last shown. */
export function buildHeadSql(stream: Stream, condition = 'true'): string {
  const {idColumn} = stream
  const columns = stream.columns.map(({name, mayBeAbsent}) => {
    const isShown = mayBeAbsent ? `${name}_present` : `kind = 'seen'`
    return `last_value(case when ${isShown} then {'it': ${name}} end ignore nulls) over so_far as ${name}`
  })
  const values = stream.columns.map(({name}) => `${name}.it as ${name}`)
  return `
    with carried as (
      select
        ${idColumn},
        kind,
        walk_id,
        observed_at,
        business_date,
        list_hash,
        ${columns.join(', ')},
        max(observed_at) filter (where source in ('detail', 'webhook')) over so_far as detail_at,
        row_number() over (partition by ${idColumn} order by observed_at desc, seq desc) as recency
      from ${tablesOf(stream).version}
      where ${condition}
      window so_far as (partition by ${idColumn} order by observed_at, seq)
    ),
    latest as (
      select * exclude (recency) replace (${values.join(', ')})
      from carried
      where recency = 1
    )
    select *, ${buildRowHashSql(stream)} as row_hash
    from latest`
}
