import {readdirSync} from 'node:fs'
import {mkdtempDisposable} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {basename, join} from 'node:path'
import {expect, test} from 'vitest'
import {requireBuilt} from '../../src/build/build.ts'
import {writeParquetFiles} from '../../src/build/build-folder.ts'
import {buildModels} from '../../src/build/build-models.ts'
import {addDays} from '../../src/core/clock.ts'
import {advanceDay, seedPortfolio} from '../../src/service/portfolio.ts'
import {openDatabase} from '../../src/store/database.ts'
import {type Release, type ReleaseTable, requireRelease} from '../../src/store/release.ts'
import {createLab} from '../support/lab.ts'
import {writeLargeHistory} from '../support/large-history.ts'
import {builtInPlan, ZONE} from './history.ts'

test('a release built for a past day equals, table by table, the one made on that day', async () => {
  await using lab = await createLab({tables: 'all'})
  const days = ['2026-02-28', '2026-03-01']
  seedPortfolio(lab.service.store, {deals: 100, seed: 'past', today: '2026-02-28'})
  const made: Release[] = []
  for (const day of days) {
    if (day !== days[0]) advanceDay(lab.service.store, {seed: 'past', day})
    const {release_id} = await lab.sync(`${addDays(day, 1)}T03:30:00Z`)
    made.push(requireRelease(lab.folder, String(release_id)))
  }
  const [first, second] = made
  const world = lab.createWorld('2026-03-02T03:30:00Z')
  const asked = {asOf: '2026-02-28', knownAt: '2026-12-31 00:00:00'}
  const {manifest} = await requireBuilt(lab.config, asked, world)
  expect(manifest.release_id).not.toBe(first?.manifest.release_id)
  expect(manifest.tables.length).toBeGreaterThan(20)
  expect(manifest.tables).toEqual(first?.manifest.tables)
  expect(manifest.tables).not.toEqual(second?.manifest.tables)
  const kept = [...made.map(({dir}) => basename(dir)), manifest.release_id]
  expect(readdirSync(lab.folder.releases).sort()).toEqual(kept.sort())
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
    const published = plan.models.filter(({isPublished}) => isPublished)
    return await writeParquetFiles(
      db,
      folder.path,
      published.map(({name, order}) => ({name, order, isStored: true})),
    )
  }
  const once = await build(1)
  // More than one row group, so every thread has work.
  expect(once.find(({name}) => name === 'core.deal_history')?.rows).toBeGreaterThan(122_880)
  expect(await build(4, 3)).toEqual(once)
})
