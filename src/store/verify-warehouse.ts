import {basename} from 'node:path'
import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import {STREAMS} from '../contract/streams.ts'
import {type Failure, messageOf} from '../core/errors.ts'
import type {DataFolder} from './data-folder.ts'
import {type Database, quoteLiteral} from './database.ts'
import {openHistory} from './warehouse.ts'

/** A rule as SQL that returns the rows that break it; the first column names each. */
export interface Rule {
  /** What the rows have in common, such as `Certificates whose records do not add up, table 'raw.walk'`; the rows follow it. */
  problem: string
  sql: string
}

/** How many rows a finding names. */
const NAMED = 3

/** Tries each rule; a rule that cannot run is a fault too. */
export async function tryRules(
  db: Database,
  rules: readonly Rule[],
  {file, next}: {file: string; next: string},
): Promise<Failure[]> {
  const faults: Failure[] = []
  for (const {problem, sql} of rules) {
    try {
      const rows = await db.all(z.record(z.string(), z.unknown()), sql)
      if (rows.length === 0) continue
      const named = [...rows.slice(0, NAMED).map(describeRow), ...(rows.length > NAMED ? ['…'] : [])]
      const found = `${problem} in '${file}': ${rows.length} wrong, ${named.join(', ')}.`
      faults.push({code: 'VERIFY_RULE', problem: found, next})
    } catch (cause) {
      const words = (messageOf(cause).split('\n')[0] ?? '').replace(/\.$/, '')
      const found = `${problem} in '${file}' cannot be examined: ${words}.`
      faults.push({code: 'VERIFY_RULE', problem: found, next, cause})
    }
  }
  return faults
}

/** `deal_7 (versions=2, last=3)` */
function describeRow(row: Record<string, unknown>): string {
  const [first, ...rest] = Object.entries(row)
  const others = rest.map(([name, value]) => `${name}=${value}`)
  return `${first?.[1]}${others.length > 0 ? ` (${others.join(', ')})` : ''}`
}

const WAREHOUSE_NEXT = 'Run `loantape rebuild`, which says how the warehouse differs from the tapes.'

/** Verifies that every table of the warehouse is readable and every certificate ties out to the cent. */
export async function verifyWarehouse(folder: DataFolder): Promise<{walks: number; faults: Failure[]}> {
  await using db = await openHistory(folder, {searchPath: 'history.raw'})
  const tables = await db.column(
    z.string(),
    `select table_name from duckdb_tables()
     where database_name = 'history' and schema_name = 'raw' order by table_name`,
  )
  const rules = [
    ...tables.map(readRule),
    ...STREAMS.flatMap(listVersionRules),
    ...STREAMS.flatMap(listCertificateRules),
    ...RATE_RULES,
  ]
  const faults = await tryRules(db, rules, {file: basename(folder.warehouse), next: WAREHOUSE_NEXT})
  const walks = await db.value(z.coerce.number(), `select count(*) from walk where state = 'applied'`)
  return {walks, faults}
}

/** Reads every value of a table, which verifies the checksum of every block. */
function readRule(table: string): Rule {
  return {
    problem: `Rows of table 'raw.${table}'`,
    sql: `select count(*) as records from ${table} as t having count(*) > 0 and bit_xor(hash(t)) is null`,
  }
}

function numberRule(table: string): Rule {
  return {
    problem: `Numbers that are not 1, 2, … of table 'raw.${table}'`,
    sql: `
      select seq, count(*) as copies from ${table} group by seq having count(*) > 1
      union all
      select max(seq), count(*) from ${table} having max(seq) <> count(distinct seq) or min(seq) <> 1
      order by all`,
  }
}

const RATE_RULES: readonly Rule[] = [
  numberRule('rate'),
  {
    problem: `Values stored twice in table 'raw.rate'`,
    sql: `
      select feed, rate, rate_date, value
      from rate
      qualify value = lag(value) over (partition by feed, rate, rate_date order by seq)
      order by all`,
  },
]

function listVersionRules({name, idColumn}: Stream): Rule[] {
  const version = `${name}_version`
  return [
    numberRule(version),
    {
      problem: `Versions stored twice in table 'raw.${version}'`,
      sql: `
        select ${idColumn}, observed_at, count(*) as copies
        from ${version}
        group by ${idColumn}, observed_at, walk_id, source, recorded_at
        having count(*) > 1
        order by all`,
    },
    {
      problem: `Versions of no applied walk in table 'raw.${version}'`,
      sql: `
        select version.walk_id, count(*) as versions
        from ${version} as version
        left join walk
          on walk.walk_id = version.walk_id
            and walk.state = 'applied'
            and walk.recorded_at = version.recorded_at
        where version.walk_id is not null and walk.walk_id is null
        group by version.walk_id
        order by all`,
    },
  ]
}

function listCertificateRules({name, plural, idColumn, parent, amountColumn}: Stream): Rule[] {
  const applied = `(from walk where stream = ${quoteLiteral(name)} and state = 'applied')`
  const rules: Rule[] = [
    {
      problem: `Certificates whose records do not add up, table 'raw.walk'`,
      sql: `
        select walk_id, records, created + updated + restored + unchanged + duplicates + quarantined as explained
        from ${applied}
        where records is distinct from explained
        order by recorded_at desc`,
    },
    {
      problem: `Certificates whose bridge to the present ${plural} does not add up, table 'raw.walk'`,
      sql: `
        select
          walk_id,
          present_deals,
          distinct_records + kept_quarantined_deals + kept_missing_deals + adjusted_deals as explained_deals,
          present_amount,
          amount_total + kept_quarantined_amount + kept_missing_amount + adjusted_amount as explained_amount
        from ${applied}
        where present_deals is distinct from explained_deals or present_amount is distinct from explained_amount
        order by recorded_at desc`,
    },
  ]
  // A walk of a child stream reads the lists of some parents only.
  return parent
    ? rules
    : [
        ...rules,
        {
          problem: `Certificate of the last walk that does not count the ${plural} of table 'raw.${name}_version'`,
          sql: `
        with last_walk as (
          from ${applied} order by recorded_at desc limit 1
        ),
        latest as (
          from ${name}_version
          qualify row_number() over (partition by ${idColumn} order by observed_at desc, seq desc) = 1
        ),
        present as (
          select count(*) as deals, coalesce(sum(${amountColumn ?? 0}), 0) as amount
          from latest
          where kind in ('seen', 'missing')
        )
        select walk_id, present_deals, deals, present_amount, amount
        from last_walk, present
        where (present_deals is distinct from deals or present_amount is distinct from amount)
          and not exists (from ${name}_version as version where version.recorded_at > last_walk.recorded_at)`,
        },
      ]
}
