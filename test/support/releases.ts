import {chmodSync, readFileSync, statSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {moveCurrent, placeRelease, writeParquetFiles} from '../../src/build/build-folder.ts'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {openDatabase} from '../../src/store/database.ts'
import {beginFolder} from '../../src/store/files.ts'
import type {ReleaseManifest} from '../../src/store/release.ts'
import {type Release, readRelease, writeChecks, writeModels} from '../../src/store/release.ts'
import {readTables} from '../../src/store/sql.ts'

const nobody = {deals: 0, amount: '0.00'}

export function aManifest(fields: Partial<ReleaseManifest> = {}): ReleaseManifest {
  return {
    schema_version: 1,
    generator: 'loantape 1.0.0',
    engine: 'DuckDB v1.5.6',
    release_id: '2026-02-02-0123456789ab',
    as_of: '2026-02-02',
    known_at: '2026-02-02T23:30:00.000000Z',
    history_id: 'a'.repeat(64),
    tape_head: 'b'.repeat(64),
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
      results: [{name: 'fresh', severity: 'warn', failures: 1, samples: ['deal_1'], ids: ['deal_1']}],
    },
    models: [{name: 'core.deal', rows: 3, duration_ms: 1}],
    tables: [],
    files: [],
    ...fields,
  }
}

/** The tables of a small release; `seed` and `work` are not published. */
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

/** Descriptions of tables and of some of their columns, by name. */
type About = Record<string, {description: string; columns: Record<string, string>}>

/** Publishes a small release and makes it current. `sql` replaces the usual tables; `about` describes them. */
export async function publishTables(
  folder: DataFolder,
  {sql = TABLES, about = {}, ...fields}: Partial<ReleaseManifest> & {sql?: string; about?: About} = {},
): Promise<Release> {
  const {release_id} = aManifest(fields)
  using place = beginFolder(join(folder.releases, release_id))
  const buildDir = place.dir
  await using db = await openDatabase({
    attach: [
      {path: join(buildDir, 'portfolio.duckdb'), alias: 'release'},
      {path: join(buildDir, 'work.duckdb'), alias: 'kept'},
    ],
  })
  await db.run(sql)
  const models = Object.entries(about).map(([name, {description, columns}]) => ({
    name,
    description,
    columns: Object.entries(columns).map(([column, meaning]) => ({name: column, meaning, line: 1})),
    schema: '',
    file: '',
    sql: 'select 1',
    // Rows may share it: a check only warns of that.
    grain: Object.keys(columns),
    order: [],
    checks: [],
    addsUp: [],
    isPublished: true,
    isOfDeals: false,
    isPerDeal: false,
    contract: 1,
  }))
  await writeModels(buildDir, {models, reads: new Map(), columns: new Map()})
  await writeChecks(buildDir, [])
  const published = await readTables(db)
  const names = [...published.keys()].filter((name) => !/^(main|seed|work)\./.test(name))
  const stored = names.map((name) => ({name, order: [], isStored: true}))
  const tables = await writeParquetFiles(db, buildDir, stored)
  await db.run('checkpoint release; detach release; detach kept')
  const {dir} = await placeRelease(place, aManifest({tables, ...fields}))
  moveCurrent(folder, dir)
  const release = readRelease(dir)
  if (!release) throw new Error('nothing was published')
  return release
}

/** Updates the sizes in a release's manifest to those of its files now, as if they had been built so. */
export function tellSizes({dir}: Pick<Release, 'dir'>): void {
  const path = join(dir, 'manifest.json')
  const manifest = JSON.parse(readFileSync(path, 'utf8'))
  for (const one of [...manifest.files, ...manifest.tables]) one.bytes = statSync(join(dir, one.file)).size
  chmodSync(path, 0o600)
  writeFileSync(path, JSON.stringify(manifest))
}

/** Publishes the nth release: `deals` rows marked with n, and a summary with their count and n. */
export const publishNth = (
  folder: DataFolder,
  nth: number,
  {deals = 2000, sql = '', ...fields}: Partial<ReleaseManifest> & {deals?: number; sql?: string} = {},
): Promise<Release> =>
  publishTables(folder, {
    release_id: `release_${nth}`,
    ...fields,
    sql: `
      create schema release.core;
      create schema release.mart;
      create table release.core.deal as
      select 'deal_' || i as deal_id, ${nth}::bigint as nth, 100.10::decimal(18,2) as loan_amount from range(${deals}) t(i);
      create table release.mart.portfolio_summary as select ${nth}::bigint as nth, ${deals}::bigint as deals; ${sql}`,
    about: {
      'core.deal': {
        description: "Deals's present \\ state.",
        columns: {loan_amount: 'What is lent, USD.'},
      },
    },
  })

/** Publishes `kinds.row`: a column of every type, with values that are easily altered in transit. */
export const publishTypes = (folder: DataFolder): Promise<Release> =>
  publishTables(folder, {
    release_id: 'types',
    sql: `
      create schema release.kinds;
      create table release.kinds.row as
      select * from (values
        (E'a\\\\b\\tc\\nd\\re\\rf''\`', 12345678901234.56::decimal(18,2), (repeat('9', 36) || '.99')::decimal(38,2),
          ('0.' || repeat('9', 38))::decimal(38,38), 9223372036854775807::bigint, 0.1::double,
          date '1999-12-31', timestamp '2026-07-05 15:00:00.000001', true, '\\N'),
        ('', -0.01, -0.01, ('-0.' || lpad('1', 38, '0'))::decimal(38,38), -1, null, null, null, false, null)
      ) as t(text, money, widest, finest, "count of it", ratio, day, instant, truth, null_word);`,
    about: {'kinds.row': {description: "What\\s's there.", columns: {money: "USD, 'exact'"}}},
  })

/** The rows of `kinds.row`, as a query returns them: integers, decimals, days and instants as text. */
export const TYPES = [
  {
    text: "a\\b\tc\nd\re\rf'`",
    money: '12345678901234.56',
    widest: `${'9'.repeat(36)}.99`,
    finest: `0.${'9'.repeat(38)}`,
    count: '9223372036854775807',
    ratio: 0.1,
    day: '1999-12-31',
    instant: '2026-07-05 15:00:00.000001',
    truth: true,
    null_word: '\\N',
  },
  {
    text: '',
    money: '-0.01',
    widest: '-0.01',
    finest: `-0.${'1'.padStart(38, '0')}`,
    count: '-1',
    ratio: null,
    day: null,
    instant: null,
    truth: false,
    null_word: null,
  },
]
