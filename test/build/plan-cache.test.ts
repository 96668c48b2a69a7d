import {mkdtempDisposable, readdir, readFile, utimes, writeFile} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {version} from '@duckdb/node-api'
import {expect, test} from 'vitest'
import {renderReleaseColumns} from '../../scripts/release-columns.ts'
import {
  compileAnew,
  compileModels,
  formatPlan,
  keyOfPlan,
  type ModelSource,
  SHIPPED_PLAN,
} from '../../src/build/compile.ts'
import {BUILT_IN_SQL, readModels} from '../../src/build/read-models.ts'
import {readSeeds} from '../../src/build/seeds.ts'
import {readSources} from '../../src/build/sources.ts'
import {parseConfig} from '../../src/core/config.ts'
import {keepText, readKept} from '../../src/store/files.ts'

function readSource(change: (sql: string) => string = (sql) => sql): ModelSource {
  const names = ['work.deal_observation', 'core.deal_history']
  const models = readModels([BUILT_IN_SQL]).filter(({name}) => names.includes(name))
  const seeds = readSeeds([BUILT_IN_SQL])
  return {models: models.map((model) => ({...model, sql: change(model.sql)})), seeds, checks: []}
}

const compile = (source: ModelSource, dir: string, engine = 'v1') =>
  compileModels(source, undefined, dir, engine)

test('a plan is compiled once, and again if its source, engine or file changes', async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'loantape-'))
  const dir = join(folder.path, 'cache')
  const source = readSource()
  const compiled = await compile(source, dir)
  const [file = ''] = await readdir(dir)
  const path = join(dir, file)
  const kept = await readFile(path, 'utf8')

  expect(await compile(readSource(), dir)).toEqual(compiled)
  const other = {
    ...JSON.parse(readKept(path) ?? ''),
    columns: [['core.deal_history', [{name: 'told by the file', type: 'VARCHAR'}]]],
  }
  keepText(path, JSON.stringify(other))
  expect((await compile(source, dir)).columns.get('core.deal_history')).toHaveLength(1)
  for (const damaged of ['', '{', kept.slice(0, -9), JSON.stringify(other)]) {
    await writeFile(path, damaged)
    expect(await compile(source, dir)).toEqual(compiled)
    expect(await readFile(path, 'utf8')).toBe(kept)
  }

  await compile(source, dir, 'v2')
  await compile(
    readSource((sql) => `${sql} `),
    dir,
  )
  expect(await readdir(dir)).toHaveLength(3)
})

test('whichever bit of a cached plan is flipped, it is compiled and cached again', async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'loantape-'))
  const source = readSource()
  const compiled = await compile(source, folder.path)
  const [file = ''] = await readdir(folder.path)
  const path = join(folder.path, file)
  const kept = await readFile(path)
  for (let at = 3; at < kept.length; at += 997) {
    const flipped = Buffer.from(kept)
    flipped.writeUInt8(flipped.readUInt8(at) ^ (1 << (at % 8)), at)
    await writeFile(path, flipped)
    expect(await compile(source, folder.path), `bit ${at % 8} of byte ${at}`).toEqual(compiled)
    expect(await readFile(path)).toEqual(kept)
  }
})

test("the shipped plan and the pages' column list match the shipped models: `npm run docs` writes both", async () => {
  const config = parseConfig({LOANTAPE_DATA_DIR: tmpdir()}, {readFile: () => ''})
  const sources = readSources(config, [])
  const plan = await compileAnew(sources)
  const text = formatPlan(keyOfPlan(sources, version()), plan)
  expect(await readFile(SHIPPED_PLAN, 'utf8')).toBe(`${text}\n`)
  const columns = join(import.meta.dirname, '../../src/build/release-columns.ts')
  expect(await readFile(columns, 'utf8')).toBe(renderReleaseColumns(plan))

  // Whatever the accounts are.
  const seeds = sources.seeds.map((seed) => (seed.isComputed ? {...seed, text: 'others', rows: []} : seed))
  expect(formatPlan(keyOfPlan(sources, version()), await compileModels({...sources, seeds}))).toBe(text)
})

test('the latest plans are kept', async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'loantape-'))
  const source = {models: [], seeds: [], checks: []}
  for (let number = 0; number < 24; number += 1) {
    const names = new Set(await readdir(folder.path))
    await compile(source, folder.path, `v${number}`)
    const [made = ''] = (await readdir(folder.path)).filter((name) => !names.has(name))
    await utimes(join(folder.path, made), number, number)
  }
  expect(await readdir(folder.path)).toHaveLength(20)
})

test('sources that do not compile leave no plan', async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'loantape-'))
  const dir = join(folder.path, 'cache')
  await expect(
    compile(
      readSource((sql) => sql.replaceAll('loan_amount', 'loan_amuont')),
      dir,
    ),
  ).rejects.toThrow()
  await expect(readdir(dir)).rejects.toThrow('ENOENT')
})
