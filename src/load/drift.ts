import {z} from 'zod'
import {optionalColumnsOf, type Stream, type Vocabulary} from '../contract/stream.ts'
import {type Database, quoteLiteral} from '../warehouse/database.ts'
import {comparedSql, tablesOf} from './stream-tables.ts'

/** Of each kind the most frequent are kept: a source that uses ids as field names floods no report. */
const MOST_FINDINGS = 100

/**
 * Stores in `raw.drift` where the staged records of a walk are not as the contract has them, each with the number of
 * records that show it: fields it does not know (`new_field`, one level deep as `borrower.name`), optional fields that
 * a record's own page leaves out (`missing_field`), and values outside the vocabularies (`unknown_value`). List rows
 * are known to be shorter: they miss nothing.
 *
 * To be called while the walk is staged.
 */
export function recordDrift(db: Database, stream: Stream, {walkId}: {walkId: string}): Promise<void> {
  return db.run(buildDriftSql(stream), [walkId])
}

/** One way in which records were not as the contract has them. */
export type DriftFinding = z.output<typeof findingRow>
const findingRow = z.object({
  kind: z.enum(['new_field', 'missing_field', 'unknown_value']),
  /** `borrower.name` */
  path: z.string(),
  /** Of an `unknown_value`; else null. */
  value: z.string().nullable(),
  records: z.coerce.number(),
})

/**
 * The drift of the last applied walk.
 *
 * @param catalog `warehouse`, or `history` for its copy
 */
export function listLastDrift(
  db: Database,
  catalog: 'warehouse' | 'history',
  stream: Stream,
): Promise<DriftFinding[]> {
  return db.all(
    findingRow,
    `select kind, path, value, records
     from ${catalog}.raw.drift
     where stream = $1 and walk_id = (
       select arg_max(walk_id, recorded_at) from ${catalog}.raw.walk where stream = $1 and state = 'applied'
     )
     order by kind, path, value`,
    [stream.name],
  )
}

function buildDriftSql(stream: Stream): string {
  const findings = [
    buildNewFieldsSql(stream),
    ...optionalColumnsOf(stream).map(({name}) => buildMissingFieldSql(stream, name)),
    ...stream.vocabularies.map((vocabulary) => buildUnknownValuesSql(stream, vocabulary)),
  ]
  return `
    insert into warehouse.raw.drift by name
    with observed as (
      from ${tablesOf(stream).staged} where source in ('list', 'detail')
    ),
    finding as (
      ${findings.map((sql) => `(${sql})`).join('\n      union all by name\n      ')}
    )
    select $1 as walk_id, ${quoteLiteral(stream.name)} as stream, kind, path, value, records
    from finding
    where records > 0
    qualify row_number() over (partition by kind order by records desc, path, value) <= ${MOST_FINDINGS}
    order by kind, path, value`
}

function buildNewFieldsSql({idColumn}: Stream): string {
  return `
    select 'new_field' as kind, path, cast(null as varchar) as value, count(distinct id) as records
    from (
      select ${idColumn} as id, unnest(string_split(unknown_fields, chr(10))) as path
      from observed
      where unknown_fields is not null
    )
    group by path`
}

function buildMissingFieldSql({idColumn}: Stream, column: string): string {
  return `
    select
      'missing_field' as kind,
      ${quoteLiteral(column)} as path,
      cast(null as varchar) as value,
      count(distinct ${idColumn}) as records
    from observed
    where source = 'detail' and not ${column}_present`
}

/** Without a list of its own a vocabulary is what was stored before; the first values there are surprise nobody. */
function buildUnknownValuesSql(stream: Stream, {column, known}: Vocabulary): string {
  const {version} = tablesOf(stream)
  const value = comparedSql(stream, column)
  const before = `(select distinct ${value} from ${version} where ${column} is not null and walk_id is distinct from $1)`
  const isUnknown =
    known === null
      ? `exists ${before} and ${value} not in ${before}`
      : `${value} not in (${known.map(quoteLiteral).join(', ')})`
  return `
    select
      'unknown_value' as kind,
      ${quoteLiteral(column)} as path,
      ${value} as value,
      count(distinct ${stream.idColumn}) as records
    from observed
    where ${column} is not null and ${isUnknown}
    group by ${value}`
}
