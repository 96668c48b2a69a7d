import {mkdtempDisposable} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {writeLargeHistory} from '../../scripts/bench/large-history.ts'
import {writeParquetFiles} from '../../src/build/build-folder.ts'
import {buildModels} from '../../src/build/build-models.ts'
import {openDatabase} from '../../src/store/database.ts'
import type {ReleaseTable} from '../../src/store/release.ts'
import {builtInPlan, ZONE} from './history.ts'

test('tables and Parquet files are the same bytes, however often, with however many threads and lanes they are built', async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'loantape-'))
  const history = join(folder.path, 'history.duckdb')
  await writeLargeHistory(history, 25_000)
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
    await buildModels(db, plan, {asOf: '2026-04-30', knownAt: '2026-12-31 00:00:00', ...ZONE})
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
