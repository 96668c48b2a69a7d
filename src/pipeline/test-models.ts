import {tmpdir} from 'node:os'
import {basename, join} from 'node:path'
import type {Config} from '../config.ts'
import {newError} from '../errors.ts'
import {type CaseResult, listCaseFiles, readCases, runCases} from '../model/cases.ts'
import {compileModels} from '../model/compile-models.ts'
import {expectOneOf} from '../nearest.ts'
import type {World} from '../types.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import {readMappedFields} from './fields-file.ts'
import {limitBuild} from './limits.ts'
import {readSources} from './sources.ts'

/** What became of the cases. */
export interface Tested {
  /** Where they are looked for. */
  folder: string
  passed: number
  failed: number
  duration_ms: number
  cases: CaseResult[]
}

/**
 * Runs the cases of the user's own models, on models, seeds and checks compiled as a build does it; nothing is read from the warehouse.
 *
 * @param table runs only those of this table
 * @throws ConfigError `SQL_DIR_MISSING`, `UNKNOWN_NAME`; CheckError `TEST_FILE`, or where a model does not compile
 */
export async function testModels(config: Config, table: string | undefined, world: World): Promise<Tested> {
  const startedAt = performance.now()
  const {sqlDir} = config
  if (sqlDir === undefined) {
    throw newError(
      'SQL_DIR_MISSING',
      'LOANTAPE_SQL_DIR is not set: expected the folder of your own models.',
      {
        kept: 'Nothing was tested.',
        next: 'Set it, then run `loantape test`.',
      },
    )
  }
  const fields = readMappedFields(dataFolderAt(config.dataDir)).map((field) => ({...field, since: null}))
  const plan = await compileModels(readSources(config, fields), world)
  const files = selectFiles(listCaseFiles(sqlDir), table)
  const cases = readCases(files, plan)
  const spillDir = join(tmpdir(), `loantape-test-${process.pid}`)
  let done = 0
  const results = await runCases(cases, {
    plan,
    zone: config,
    limit: (db) => limitBuild(db, config, {spillDir, historyBytes: 0}, world),
    onDone() {
      done += 1
      world.onProgress({step: 'cases', unit: 'cases', done, total: cases.length})
    },
  })
  const passed = results.filter((result) => result.passed).length
  const duration_ms = Math.round(performance.now() - startedAt)
  return {folder: join(sqlDir, 'tests'), passed, failed: results.length - passed, duration_ms, cases: results}
}

function selectFiles(files: readonly string[], table: string | undefined): readonly string[] {
  if (table === undefined) return files
  const tables = files.map((file) => basename(file, '.yaml'))
  if (tables.includes(table)) return files.filter((file) => basename(file, '.yaml') === table)
  const expected = tables.length === 0 ? 'expected a file of that name' : expectOneOf(table, tables)
  throw newError(
    'UNKNOWN_NAME',
    `Table '${table}' has no tests/${table}.yaml in LOANTAPE_SQL_DIR: ${expected}.`,
    {next: '`loantape test` without a name runs all.'},
  )
}
