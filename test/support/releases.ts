import {join} from 'node:path'
import {
  createBuildFolder,
  moveCurrent,
  publishRelease,
  writeParquetFiles,
} from '../../src/release/build-folder.ts'
import {type Release, readRelease} from '../../src/release/manifest.ts'
import type {ReleaseManifest} from '../../src/release-manifest.ts'
import type {DataFolder} from '../../src/warehouse/data-folder.ts'
import {openDatabase} from '../../src/warehouse/database.ts'

const nobody = {deals: 0, amount: '0.00'}

/** A manifest as a build writes it. */
export function aManifest(fields: Partial<ReleaseManifest> = {}): ReleaseManifest {
  return {
    schema_version: 1,
    generator: 'loantape 0.1.0',
    engine: 'DuckDB v1.5.6',
    release_id: '2026-02-02-0123456789ab',
    as_of: '2026-02-02',
    known_at: '2026-02-02T23:30:00.000000Z',
    history_id: 'a'.repeat(64),
    tape_head: null,
    observed_until: '2026-02-02',
    currency: 'USD',
    time_zone: 'America/New_York',
    source: {
      walk_id: 'w_1',
      business_date: '2026-02-02',
      complete: true,
      records: 3,
      distinct: 3,
      amount_total: '600.30',
      duplicates: 0,
      quarantined: 0,
      kept_quarantined: nobody,
      kept_missing: nobody,
      adjusted: nobody,
      present: {deals: 3, amount: '600.30'},
    },
    checks: {
      passed: 4,
      warned: 1,
      results: [{name: 'fresh', severity: 'warn', failures: 1, samples: ['deal_1']}],
    },
    models: [{name: 'core.deal', rows: 3, duration_ms: 1}],
    tables: [],
    ...fields,
  }
}

/** The tables of a small release; what stands in `seed` and `work` is not published. */
const TABLES = `
  create schema release.core;
  create schema release.mart;
  create schema release.seed;
  create table release.core.deal as
  select * from (values
    ('deal_1', '1 "Main" St, Austin', 100.10::decimal(18,2), timestamp '2026-01-05 15:00:00.000001', 0.5::double, true),
    ('deal_2', '', 200.10, null, null, false),
    ('deal_3', null, 300.10, timestamp '2026-01-07 00:00:00', 0.1, null)
  ) as t(deal_id, property_address, loan_amount, created_at, ltv, is_missing);
  create table release.mart.portfolio_summary as select date '2026-02-02' as as_of, 3::bigint as deals;
  create table release.seed.status as select 'draft' as status`

/** Publishes a small release and makes it the current one; `sql` makes other tables than the usual ones. */
export async function publishTables(
  folder: DataFolder,
  {sql = TABLES, ...fields}: Partial<ReleaseManifest> & {sql?: string} = {},
): Promise<Release> {
  const {release_id} = aManifest(fields)
  const buildDir = await createBuildFolder(folder, release_id)
  await using db = await openDatabase({
    attach: [{path: join(buildDir, 'portfolio.duckdb'), alias: 'release'}],
  })
  await db.run(sql)
  const tables = await writeParquetFiles(db, buildDir, () => ({order: [], isStored: true}))
  await db.run('checkpoint release; detach release')
  const dir = await publishRelease(folder, buildDir, aManifest({tables, ...fields}))
  moveCurrent(folder, dir)
  const release = readRelease(dir)
  if (!release) throw new Error('nothing was published')
  return release
}
