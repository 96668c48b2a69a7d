import {join} from 'node:path'
import {z} from 'zod'
import {type Failure, messageOf} from '../core/errors.ts'
import {type Database, quoteLiteral} from '../store/database.ts'
import {findFileFault} from '../store/files.ts'
import type {Release} from '../store/release.ts'
import {openRelease} from '../store/release.ts'
import {readTables} from '../store/sql.ts'
import {type Rule, tryRules} from '../store/verify-warehouse.ts'

/** What to do about a release that differs from its manifest. */
export const RELEASE_NEXT = 'Remove the release folder and run `loantape build`, which makes it again.'

/** The files of a release that are missing or have a wrong sha256. */
export async function verifyReleaseFiles({dir, manifest}: Release): Promise<Failure[]> {
  const faults: Failure[] = []
  for (const {file, sha256} of manifest.tables) {
    const fault = await findFileFault(join(dir, file), sha256)
    if (fault === undefined) continue
    const problem = `File '${file}' of release ${manifest.release_id} ${fault}.`
    faults.push({code: 'RELEASE_FILE', problem, next: RELEASE_NEXT})
  }
  return faults
}

const readRow = z.object({rows: z.coerce.number(), digest: z.string().nullable()})

/** Verifies that the tables of a release match its manifest and that each deal has one unbroken history. */
export async function verifyReleaseTables(release: Release): Promise<Failure[]> {
  const {manifest} = release
  await using db = await openRelease(release)
  const faults = await tryRules(db, listRules(release), {
    file: `portfolio.duckdb of release ${manifest.release_id}`,
    next: RELEASE_NEXT,
  })
  const tables = await readTables(db)
  for (const {name, rows} of manifest.tables) {
    const found = tables.has(name) ? await describeRows(db, name) : 'is not there'
    if (found === `has ${rows} rows`) continue
    faults.push({
      code: 'RELEASE_ROWS',
      problem: `Table '${name}' of release ${manifest.release_id} ${found}: its manifest says ${rows} rows.`,
      next: RELEASE_NEXT,
    })
  }
  return faults
}

/** `has 7 rows`, or why its rows cannot be counted. */
async function describeRows(db: Database, table: string): Promise<string> {
  // The digest only makes the engine read every value.
  const read = `select count(*) as rows, cast(bit_xor(hash(t)) as varchar) as digest from release.${table} as t`
  try {
    return `has ${(await db.one(readRow, read)).rows} rows`
  } catch (error) {
    return `cannot be read (${messageOf(error).split('\n')[0]})`
  }
}

function listRules({manifest: {source}}: Release): Rule[] {
  const decimal = (amount: string) => `cast(${quoteLiteral(amount)} as decimal(38, 2))`
  const totals: [column: string, expected: string][] = [
    ['records', `${source.records}`],
    ['distinct_records', `${source.distinct}`],
    ['duplicates', `${source.duplicates}`],
    ['quarantined', `${source.quarantined}`],
    ['amount_total', decimal(source.amount_total)],
    ['present_deals', `${source.present.deals}`],
    ['present_amount', decimal(source.present.amount)],
  ]
  const comparisons = totals.map(
    ([column, expected]) =>
      `select ${quoteLiteral(column)} as total, cast(any_value(${column}) as varchar) as found, cast(${expected} as varchar) as manifest
       from last_walk having any_value(${column}) is distinct from ${expected}`,
  )
  return [
    {
      problem: "Histories that are broken, table 'core.deal_history',",
      sql: `
        select deal_id, count(*) as versions, max(version) as last, count(*) filter (valid_to is null) as current
        from core.deal_history
        group by deal_id
        having count(*) <> max(version) or count(distinct version) <> count(*) or current <> 1
        order by deal_id`,
    },
    {
      problem: "Control totals of table 'mart.run' that are not the manifest's",
      sql: `with last_walk as (from mart.run where walk_id = ${quoteLiteral(source.walk_id)})
        ${comparisons.join(' union all ')}`,
    },
    {
      problem: "Totals of table 'mart.portfolio_summary' that are not those of 'core.deal'",
      sql: `
        select summary.deals, deal.deals as core_deals, summary.amount, deal.amount as core_amount
        from mart.portfolio_summary as summary
        cross join (select count(*) as deals, coalesce(sum(loan_amount), 0) as amount from core.deal) as deal
        where summary.deals <> deal.deals or summary.amount <> deal.amount`,
    },
  ]
}
