import {mkdtempDisposable, readdir, readFile, utimes, writeFile} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {readChecks} from '../../src/check/read-checks.ts'
import {compileModels} from '../../src/model/compile-models.ts'
import type {ModelSource} from '../../src/model/plan-cache.ts'
import {BUILT_IN_SQL, readModels} from '../../src/model/read-models.ts'
import {readSeeds} from '../../src/model/seeds.ts'

function readSource(change: (sql: string) => string = (sql) => sql): ModelSource {
  const models = readModels([BUILT_IN_SQL]).map((model) => ({...model, sql: change(model.sql)}))
  return {models, seeds: readSeeds([BUILT_IN_SQL]), checks: readChecks(models, [BUILT_IN_SQL])}
}

const compile = (source: ModelSource, dir: string, engine = 'v1') =>
  compileModels(source, undefined, {dir, engine})

test('a plan is compiled once, and anew where its source, its engine or its file is another', async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'loantape-'))
  const dir = join(folder.path, 'cache')
  const source = readSource()
  const compiled = await compile(source, dir)
  const [file = ''] = await readdir(dir)
  const path = join(dir, file)
  const kept = await readFile(path, 'utf8')

  expect(await compile(readSource(), dir)).toEqual(compiled)
  const other = {...JSON.parse(kept), columns: [['core.deal', [{name: 'told by the file', type: 'VARCHAR'}]]]}
  await writeFile(path, JSON.stringify(other))
  expect((await compile(source, dir)).columns.get('core.deal')).toHaveLength(1)
  for (const damaged of ['', '{', kept.slice(0, -9), JSON.stringify({...other, models: ['core.deal']})]) {
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
      readSource((sql) => sql.replace('loan_amount', 'loan_amuont')),
      dir,
    ),
  ).rejects.toThrow()
  await expect(readdir(dir)).rejects.toThrow('ENOENT')
})
