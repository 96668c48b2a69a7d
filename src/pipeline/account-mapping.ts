import {existsSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {
  type AccountMapping,
  DEFAULT_MAPPING,
  FIRST_PERIOD,
  type MappingVersion,
  parseMapping,
} from '../accounting/mapping.ts'
import {listMappingVersions} from '../accounting/periods.ts'
import type {Config} from '../config.ts'
import {codeOf, newError} from '../errors.ts'
import {findCurrentRelease} from '../release/manifest.ts'
import {hasStateDb, openStateDb} from '../state/state-db.ts'
import {dataFolderAt, requireWritable} from '../warehouse/data-folder.ts'
import {readPrograms} from './journal-read.ts'

/**
 * The mapping that holds for open periods: of `LOANTAPE_ACCOUNTING_FILE`, else of `accounting.json` in the data folder,
 * else the default.
 *
 * @throws ConfigError `ACCOUNTING_MAPPING` naming file and field
 */
export function readAccountMapping({accountingFile, dataDir}: Config): AccountMapping {
  const file = mappingFileOf({accountingFile, dataDir})
  if (accountingFile === undefined && !existsSync(file)) return DEFAULT_MAPPING
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch (cause) {
    const problem = `Account mapping '${file}' cannot be read (${codeOf(cause)}).`
    throw newError('ACCOUNTING_MAPPING', problem, {cause})
  }
  return parseMapping(text, file)
}

function mappingFileOf({accountingFile, dataDir}: Pick<Config, 'accountingFile' | 'dataDir'>): string {
  return accountingFile ?? join(dataFolderAt(dataDir).root, 'accounting.json')
}

/**
 * The mapping of a folder that has one of its own: nothing is issued or closed under accounts that nobody chose.
 *
 * @throws ConfigError `ACCOUNTING_NONE`, `ACCOUNTING_MAPPING`
 */
export function requireOwnMapping(config: Config): AccountMapping {
  const file = mappingFileOf(config)
  if (config.accountingFile !== undefined || existsSync(file)) return readAccountMapping(config)
  throw newError(
    'ACCOUNTING_NONE',
    `Account mapping '${file}' is not there: expected the accounts of your books.`,
  )
}

/**
 * Writes a mapping to edit: an account for each program of the book, all of them the default's.
 *
 * @throws ConfigError `ACCOUNTING_EXISTS`
 */
export async function initAccounting(config: Config): Promise<{file: string; programs: string[]}> {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  const file = mappingFileOf(config)
  const release = findCurrentRelease(folder)
  const found = release ? await readPrograms(release) : []
  const programs = found.filter((program) => program !== null)
  const {receivable, ...others} = DEFAULT_MAPPING
  const any = receivable['*']
  const named = Object.fromEntries(programs.map((program) => [program, any]))
  const text = `${JSON.stringify({receivable: {...named, ...receivable}, ...others}, null, 2)}\n`
  try {
    writeFileSync(file, text, {flag: 'wx'})
  } catch (cause) {
    if (codeOf(cause) !== 'EEXIST') throw cause
    throw newError('ACCOUNTING_EXISTS', `Account mapping '${file}' is there already.`, {cause})
  }
  return {file, programs}
}

/**
 * Every mapping with the periods it holds for, as far as they matter to a release.
 *
 * @param asOf `YYYY-MM-DD`; all of them by default
 */
export function readMappingVersions(config: Config, asOf = '9999-12-31'): MappingVersion[] {
  const mapping = readAccountMapping(config)
  const folder = dataFolderAt(config.dataDir)
  if (!hasStateDb(folder.stateDb)) return [{since: FIRST_PERIOD, mapping, movesBalances: false}]
  using stateDb = openStateDb(folder.stateDb)
  return listMappingVersions(stateDb, mapping, asOf.slice(0, 7))
}
