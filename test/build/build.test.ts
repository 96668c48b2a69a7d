import {execFileSync} from 'node:child_process'
import {
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import {dirname, join} from 'node:path'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {type BuildRequest, type BuildResult, buildRelease, prepareBuild} from '../../src/build/build.ts'
import {findLastChecking} from '../../src/build/checks.ts'
import type {Config} from '../../src/core/config.ts'
import type {RunStep, World} from '../../src/core/types.ts'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {openDatabase} from '../../src/store/database.ts'
import {takeFileLock} from '../../src/store/files.ts'
import {findCurrentRelease} from '../../src/store/release.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {anyRow, FEW_TABLES, readFiles, readManifest} from '../support/data.ts'
import {aDeal, failureOf, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'

const nights = new Map<string, string>()

const lab = await useLab({tables: FEW_TABLES})
const beforeLast = join(lab.folder.root, '../before last')
const {store} = lab.service
store.insert(someDeals(20))
for (const day of ['2026-02-02', '2026-02-03', '2026-02-05']) {
  if (nights.size === 2) copyFileSync(lab.folder.warehouse, beforeLast)
  const {release_id} = await lab.sync(`${day}T23:30:00-05:00`)
  nights.set(day, String(release_id))
  store.insert([aDeal(20 + nights.size, {status: 'funded'})])
}

/** Writes the user's own SQL unless it exists; returns the settings that name it, and a separate data folder. */
function withSql(name: string, files: Record<string, string>): {folder: DataFolder; config: Config} {
  copies += 1
  const folder = lab.copyFolder(`${name}-${copies}`)
  const sqlDir = join(folder.root, '../sql', name)
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(dirname(join(sqlDir, file)), {recursive: true})
    writeFileSync(join(sqlDir, file), text)
  }
  return {folder, config: {...lab.config, dataDir: folder.root, sqlDir}}
}

const build = (
  {folder, config}: {folder: DataFolder; config: Config},
  request: BuildRequest = {},
  changes: Partial<World> = {},
): Promise<BuildResult> => {
  const world = lab.createWorld('2026-02-07T12:00:00-05:00')
  return buildRelease({...config, dataDir: folder.root}, request, {...world, ...changes})
}

let copies = 0
const plain = () => ({folder: lab.folder, config: lab.config})

const HEADER = '-- Deals that are small.\n-- grain: deal_id\n--\n-- deal_id: the id\n'
const ENDLESS = `${HEADER}select cast(count(*) as varchar) as deal_id
from raw.walk as walk, range(100000000) as a, range(100000000) as b
where a.range + b.range = walk.pages - 1000\n`

test('a release id is its date and twelve hex digits, which change with each input and with nothing else', async () => {
  const idOf = async (changes: Partial<Config> = {}, request: BuildRequest = {}) => {
    const world = lab.createWorld('2026-02-07T12:00:00-05:00')
    const config = {...lab.config, ...changes}
    const {build: prepared} = await prepareBuild(config, request, world, {aside: 'examined'})
    using _place = prepared?.place
    return String(prepared?.identity.release_id)
  }
  const id = await idOf()
  expect(id).toMatch(/^2026-02-05-[0-9a-f]{12}$/)
  expect(await idOf()).toBe(id)
  const {config} = withSql('other models', {'mart/small.sql': `${HEADER}select deal_id from core.deal`})
  const others = [
    await idOf({}, {asOf: '2026-02-03'}),
    await idOf({}, {knownAt: '2026-02-06T04:30:00.000001Z'}),
    await idOf({timeZone: 'America/Chicago'}),
    await idOf({dayCutoff: '05:00'}),
    await idOf({sqlDir: config.sqlDir}),
  ]
  expect(new Set([id, ...others].map((one) => one.slice(11))).size).toBe(6)
})

/** Models and a check that are compiled once; each test selects one of them. */
const withLarge = () =>
  withSql('large', {
    'mart/endless.sql': ENDLESS,
    'mart/night.sql': `${HEADER}select walk_id as deal_id from raw.walk\n`,
    'checks/endless.sql': `-- Nothing.\n-- severity: warn
select night.deal_id from mart.night, range(100000000) as a, range(100000000) as b where a.range + b.range = -1\n`,
    'mart/sorted.sql': `${HEADER}select deal_id || r.range as deal_id from core.deal, range(60000) as r order by md5(deal_id)\n`,
    'mart/wide.sql': `${HEADER}select md5(range::varchar) as deal_id from range(700000)\n`,
  })

const tablesOf = ({dir}: BuildResult) =>
  Object.entries(readFiles(dir)).filter(([file]) => file.endsWith('.parquet'))

test('the release of a past date is the one that was current that night, and a rebuild has the same bytes', async () => {
  const first = await build(plain(), {asOf: '2026-02-03'})
  expect(first).toMatchObject({
    outcome: 'unchanged',
    release_id: nights.get('2026-02-03'),
    known_at: '2026-02-04T04:30:00.000000Z',
    is_current: false,
  })
  const digests = tablesOf(first)
  const {source} = readManifest(first.dir)
  expect(source).toMatchObject({business_date: '2026-02-03', present: {deals: 21}})
  rmSync(first.dir, {recursive: true})
  const again = await build(plain(), {asOf: '2026-02-03'})
  expect(again).toMatchObject({outcome: 'released', release_id: first.release_id})
  expect(tablesOf(again)).toEqual(digests)
  expect(readManifest(again.dir).source).toEqual(source)
  const late = await build(plain(), {asOf: '2026-02-03', knownAt: '2026-02-06 05:00:00'})
  expect(readManifest(late.dir).source).toMatchObject({business_date: '2026-02-03'})
  expect(lab.currentReleaseId()).toBe(nights.get('2026-02-05'))
})

test('a build that a sync overtakes leaves current where the sync put it', async () => {
  const folder = lab.copyFolder('overtaken')
  const latest = `${folder.warehouse}.latest`
  renameSync(folder.warehouse, latest)
  copyFileSync(beforeLast, folder.warehouse)
  rmSync(join(folder.releases, nights.get('2026-02-03') ?? ''), {recursive: true})
  // A sync ends while the models of this build run.
  const onStep = (step: RunStep) => {
    if (step === 'models built') renameSync(latest, folder.warehouse)
  }
  const result = await build({folder, config: lab.config}, {}, {onStep})
  expect(result).toMatchObject({
    outcome: 'released',
    release_id: nights.get('2026-02-03'),
    is_current: false,
  })
  expect(findCurrentRelease(folder)?.manifest.release_id).toBe(nights.get('2026-02-05'))

  // A build that nothing has overtaken keeps syncs waiting until it has moved `current`.
  rmSync(folder.current)
  const locks: ReturnType<typeof takeFileLock>[] = []
  const lock = (step: RunStep) => {
    if (step === 'current moved') locks.push(takeFileLock(folder.warehouseLock, 'write', 0))
  }
  await build({folder, config: lab.config}, {}, {onStep: lock})
  expect(await Promise.all(locks)).toEqual([undefined])
})

test("a build writes its output file over one's own, links followed, but never over another or what is no file", async () => {
  const folder = lab.copyFolder('out')
  const out = join(folder.root, 'for-audit.duckdb')
  const link = join(folder.root, '../link')
  symlinkSync(out, link)
  await build({folder, config: lab.config}, {asOf: '2026-02-03', out})
  await build({folder, config: lab.config}, {asOf: '2026-02-05', out: link})
  expect(readlinkSync(link)).toBe(out)
  {
    await using copy = await openDatabase({attach: [{path: out, alias: 'copy', readOnly: true}]})
    expect(await copy.one(anyRow, 'select deals from copy.mart.portfolio_summary')).toEqual({deals: '22'})
  }
  mkdirSync(folder.exports, {recursive: true})
  writeFileSync(join(folder.root, '../kept-elsewhere'), 'a key')
  symlinkSync('../kept-elsewhere', folder.hashKey)
  for (const [name, target] of [
    ['to-warehouse', folder.warehouse],
    ['to-device', '/dev/null'],
    ['to-nothing', 'nowhere'],
  ] as const)
    symlinkSync(target, join(folder.root, '..', name))
  execFileSync('mkfifo', [join(folder.root, '../pipe')])
  const before = readFiles(folder.root)
  for (const name of [
    'warehouse.duckdb',
    'state.sqlite',
    'hash.key',
    'accounting.json',
    'source.json',
    'current/portfolio.duckdb',
    'exports/mine.duckdb',
    '../',
    '../nowhere/portfolio.duckdb',
    '../to-warehouse',
    '../to-device',
    '../to-nothing',
    '../pipe',
  ]) {
    const failure = await failureOf(build({folder, config: lab.config}, {out: join(folder.root, name)}))
    expect(failure, name).toMatchObject({code: 'OUT_PLACE', exitCode: 2})
    expect(readFiles(folder.root), name).toEqual(before)
  }
})

test('the meaning of tables and columns is in the release, for any client, and no work table', async () => {
  await using db = await openDatabase({
    attach: [{path: join(lab.folder.current, 'portfolio.duckdb'), alias: 'portfolio', readOnly: true}],
  })
  const uncommented = await db.all(
    anyRow,
    `select schema_name, table_name from duckdb_tables()
     where database_name = 'portfolio' and schema_name <> 'seed' and comment is null
     union all
     select table_name, column_name from duckdb_columns()
     where database_name = 'portfolio' and schema_name not in ('seed', 'information_schema', 'pg_catalog', 'main') and comment is null`,
  )
  expect(uncommented).toEqual([])
  const schemas = `select distinct schema_name from duckdb_tables() where database_name = 'portfolio' order by 1`
  expect(await db.column(z.string(), schemas)).toEqual(['core', 'mart', 'seed'])
})

/** Returns the failure of a build, which must leave nothing behind. */
async function failureOfBuild(
  own: {folder: DataFolder; config: Config},
  {request, ...changes}: Partial<World> & {request?: BuildRequest},
): Promise<Awaited<ReturnType<typeof failureOf>>> {
  const failure = await failureOf(build(own, request, changes))
  expect(readdirSync(own.folder.releases).filter((name) => name.startsWith('.'))).toEqual([])
  return failure
}

test('a model or check that takes too long is named, and the build leaves nothing behind', async () => {
  const own = withLarge()
  const hasty = {...own, config: {...own.config, modelTimeoutSeconds: 0.05}}
  const late = await failureOfBuild(hasty, {request: {select: 'mart.endless'}})
  expect(late).toMatchObject({code: 'BUILD_TIMEOUT', exitCode: 3})
  expect(late.message).toMatch(/Model 'mart\.endless' in .*endless\.sql took longer than 0.05 s/)
  const check = await failureOfBuild(hasty, {request: {select: 'mart.night'}})
  expect(check).toMatchObject({code: 'BUILD_TIMEOUT', exitCode: 3})
})

test('a sort larger than its memory limit spills into the build folder, which is removed afterwards', async () => {
  const own = withLarge()
  const result = await build({...own, config: {...own.config, memoryMb: 150}}, {select: 'mart.sorted'})
  expect(result.models).toMatchObject([{name: 'mart.sorted', rows: 1_320_000}])
  expect(readdirSync(result.dir).sort()).toEqual([
    'checks.json',
    'manifest.json',
    'mart.sorted.parquet',
    'models.json',
    'portfolio.duckdb',
    'work.duckdb',
  ])
})

test('a build asked to stop ends at once like any run, also while writing a file, and says how to continue', async () => {
  const own = withLarge()
  const stopAt = (step: RunStep): Pick<World, 'signal' | 'onStep'> => {
    const stopping = new AbortController()
    const stop = () => stopping.abort(new Error('stopped by SIGTERM'))
    return {
      signal: stopping.signal,
      onStep(passed) {
        if (passed === step) setImmediate(stop)
      },
    }
  }
  const failure = await failureOfBuild(own, {select: '+mart.endless', ...stopAt('models compiled')})
  expect(failure).toMatchObject({code: 'INTERRUPTED', exitCode: 6})
  expect(failure.message).toMatch(/`current` is as it was.*`loantape build`/)
  const stopped = await failureOfBuild(own, {request: {select: 'mart.wide'}, ...stopAt('checks passed')})
  expect(stopped.code).toBe('INTERRUPTED')
  expect(stopped.message).toContain("table 'mart.wide' was interrupted")
})

test('a selection is built without its inputs, with only its own checks; a past moment leaves the last findings', async () => {
  const own = withSql('failing', {
    'checks/no_draft.sql': `-- No draft.\n-- severity: error\nselect deal_id from core.deal where status = 'draft'\n`,
    'checks/no_summary.sql': `-- None.\n-- severity: warn\nselect deals from mart.portfolio_summary\n`,
  })
  const out = join(own.folder.root, '../some.duckdb')
  const selected = await build(own, {select: 'mart.portfolio_summary', out})
  expect(selected).toMatchObject({is_scratch: true, is_current: false, dir: own.folder.scratch})
  expect(selected.models).toMatchObject([{name: 'mart.portfolio_summary'}])
  // A manifest names the rows of a warning, and holds none of them.
  const {results} = readManifest(selected.dir).checks
  expect(results).toMatchObject([{name: 'no_summary', samples: ['22'], ids: ['22']}])
  expect(results[0]).not.toHaveProperty('rows')
  await using copy = await openDatabase({attach: [{path: out, alias: 'copy', readOnly: true}]})
  await expect(copy.run('from copy.core.deal')).rejects.toThrow(/does not exist/)
  for (const request of [{select: 'core.deal'}, {}])
    expect(await failureOf(build(own, request))).toMatchObject({code: 'CHECK_FAILED'})
  const unchecked = {...own, config: {...own.config, sqlDir: undefined}}
  await build(unchecked, {knownAt: '2026-02-06 05:00:00'})
  using stateDb = openStateDb(own.folder.stateDb)
  expect(findLastChecking(stateDb)).toMatchObject({failed: [{name: 'no_draft', failures: 20}, {}]})
})

test('a release opens in DuckDB 1.0, and the warehouse has the newest format', async () => {
  /** The version of the file format, which follows the magic bytes in the header. */
  const formatOf = (path: string) => Number(readFileSync(path).readBigUInt64LE(12))
  expect(formatOf(join(lab.folder.current, 'portfolio.duckdb'))).toBe(64)
  expect(formatOf(lab.folder.warehouse)).toBeGreaterThan(64)
})
