import {basename} from 'node:path'
import type {Stream} from '../contract/stream.ts'
import type {Failure} from '../errors.ts'
import type {DataFolder} from './data-folder.ts'
import {quoteLiteral} from './database.ts'
import {type Rule, tryRules} from './deep-read.ts'
import {openHistory} from './warehouse.ts'

/**
 * Looks for what must never be in `history.duckdb`: lost or doubled versions, and certificates that do not tie out to
 * the cent.
 *
 * @param next what to do about it
 */
export async function verifyHistory(folder: DataFolder, stream: Stream, next: string): Promise<Failure[]> {
  await using db = await openHistory(folder, {searchPath: 'history.raw'})
  // Without the await the database would close under its queries.
  return await tryRules(db, listRules(stream), {file: basename(folder.history), next})
}

/** The same of the reference rates: every value stands once, and differs from the one before it. */
export async function verifyRates(folder: DataFolder, next: string): Promise<Failure[]> {
  await using db = await openHistory(folder, {searchPath: 'history.raw'})
  return await tryRules(db, RATE_RULES, {file: basename(folder.history), next})
}

const RATE_RULES: readonly Rule[] = [
  {
    problem: `Numbers that are not 1, 2, … of table 'raw.rate'`,
    sql: `
      select seq, count(*) as copies from rate group by seq having count(*) > 1
      union all
      select max(seq), count(*) from rate having max(seq) <> count(distinct seq) or min(seq) <> 1
      order by all`,
  },
  {
    problem: `Values that stand twice in table 'raw.rate'`,
    sql: `
      select feed, rate, rate_date, value
      from rate
      qualify value = lag(value) over (partition by feed, rate, rate_date order by seq)
      order by all`,
  },
]

function listRules(stream: Stream): Rule[] {
  return [...listVersionRules(stream), ...listCertificateRules(stream)]
}

function listVersionRules({name, idColumn}: Stream): Rule[] {
  const version = `${name}_version`
  return [
    {
      problem: `Numbers that are not 1, 2, … of table 'raw.${version}'`,
      sql: `
        select seq, count(*) as copies from ${version} group by seq having count(*) > 1
        union all
        select max(seq), count(*) from ${version} having max(seq) <> count(distinct seq) or min(seq) <> 1
        order by all`,
    },
    {
      problem: `Versions that stand twice in table 'raw.${version}'`,
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
