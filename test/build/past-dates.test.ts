import {readdirSync} from 'node:fs'
import {mkdtempDisposable} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {basename, join} from 'node:path'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {buildRelease} from '../../src/build/build.ts'
import {writeParquetFiles} from '../../src/build/build-folder.ts'
import {buildModels} from '../../src/build/build-models.ts'
import {addDays} from '../../src/core/clock.ts'
import {advanceDay} from '../../src/service/advance-day.ts'
import {seedPortfolio} from '../../src/service/portfolio.ts'
import {openDatabase} from '../../src/store/database.ts'
import type {ReleaseTable} from '../../src/store/release.ts'
import {requireRelease} from '../../src/store/release.ts'
import {createLab} from '../support/lab.ts'
import {writeLargeHistory} from '../support/large-history.ts'
import {builtInPlan, ZONE} from './history.ts'

const tableRow = z.object({name: z.string()})
const countRow = z.object({rows: z.coerce.number()})

/** How many rows each table of two releases has that the other lacks. */
async function compareReleases(left: string, right: string): Promise<Record<string, number>> {
  await using db = await openDatabase({
    attach: [
      {path: join(left, 'portfolio.duckdb'), alias: 'l', readOnly: true},
      {path: join(right, 'portfolio.duckdb'), alias: 'r', readOnly: true},
    ],
  })
  const tables = await db.all(
    tableRow,
    `select distinct schema_name || '.' || table_name as name from duckdb_tables() where database_name in ('l', 'r')`,
  )
  const differences: Record<string, number> = {}
  for (const {name} of tables) {
    const {rows} = await db.one(
      countRow,
      `select count(*) as rows from (
         (from l.${name} except all from r.${name}) union all (from r.${name} except all from l.${name})
       )`,
    )
    differences[name] = rows
  }
  return differences
}

test('a release built for a past day equals, table by table, the one made on that day', async () => {
  await using lab = await createLab({tables: 'all'})
  const days = ['2026-02-28', '2026-03-01']
  seedPortfolio(lab.service.store, {deals: 100, seed: 'past', today: '2026-02-28'})
  const made: string[] = []
  for (const day of days) {
    if (day !== days[0]) advanceDay(lab.service.store, {seed: 'past', day})
    const {release_id} = await lab.sync(`${addDays(day, 1)}T03:30:00Z`)
    made.push(requireRelease(lab.folder, release_id ?? undefined).dir)
  }
  const world = lab.createWorld('2026-03-02T03:30:00Z')
  const asOf = days[0] ?? ''
  const built = await buildRelease(lab.config, {asOf, knownAt: '2026-12-31 00:00:00'}, world)
  expect(built.dir).not.toBe(made[0])
  const differences = await compareReleases(built.dir, made[0] ?? '')
  expect(Object.keys(differences).length).toBeGreaterThan(20)
  expect(Object.entries(differences).filter(([, rows]) => rows > 0)).toEqual([])
  expect(await compareReleases(made[0] ?? '', made[1] ?? '')).not.toMatchObject({'core.deal': 0})
  const left = readdirSync(lab.folder.releases)
  expect(left).toHaveLength(made.length + 1)
  expect(left).toEqual(expect.arrayContaining(made.map((dir) => basename(dir))))
})

test('tables and Parquet files are the same bytes, however often, with however many threads and lanes they are built', async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'loantape-'))
  const history = join(folder.path, 'history.duckdb')
  await writeLargeHistory(history, {deals: 13_000, days: 13})
  const {plan} = await builtInPlan()
  const build = async (threads: number, lanes = 1): Promise<ReleaseTable[]> => {
    await using db = await openDatabase({
      threads,
      lanes,
      attach: [
        {path: history, alias: 'history', readOnly: true},
        {path: ':memory:', alias: 'release'},
      ],
    })
    await buildModels(db, plan, {asOf: '2026-02-28', knownAt: '2026-12-31 00:00:00', ...ZONE})
    return await writeParquetFiles(db, folder.path, () => ({order: [], isStored: true}))
  }
  const once = await build(1)
  // More than one row group, so every thread has work.
  expect(once.find(({name}) => name === 'core.deal_history')?.rows).toBeGreaterThan(122_880)
  expect(await build(4, 3)).toEqual(once)
})
