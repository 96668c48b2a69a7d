import {existsSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {
  type AccountMapping,
  DEFAULT_MAPPING,
  draftMapping,
  FIRST_PERIOD,
  findPlaceholders,
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
export function readAccountMapping(config: Config): AccountMapping {
  return findOwnMapping(config) ?? DEFAULT_MAPPING
}

/**
 * The mapping of a folder that has one of its own; undefined where there is no file.
 *
 * @throws ConfigError `ACCOUNTING_MAPPING` naming file and field
 */
export function findOwnMapping(config: Config): AccountMapping | undefined {
  const file = mappingFileOf(config)
  if (config.accountingFile === undefined && !existsSync(file)) return undefined
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
 * The mapping of a folder whose accounts somebody has set: nothing is issued or closed under accounts that nobody chose.
 *
 * @throws ConfigError `ACCOUNTING_NONE`, `ACCOUNTING_MAPPING`, `ACCOUNTING_PLACEHOLDER` naming the fields
 */
export function requireOwnMapping(config: Config): AccountMapping {
  const mapping = findOwnMapping(config)
  const file = mappingFileOf(config)
  if (!mapping) {
    throw newError(
      'ACCOUNTING_NONE',
      `Account mapping '${file}' is not there: expected the accounts of your books.`,
    )
  }
  const placeholders = findPlaceholders(mapping)
  if (placeholders.length === 0) return mapping
  throw newError(
    'ACCOUNTING_PLACEHOLDER',
    `Account mapping '${file}': ${placeholders.join(', ')} still in angle brackets: expected the code and name of an account of your books.`,
  )
}

/**
 * Writes a mapping to edit: an account for each program of the book, all of them placeholders.
 *
 * @throws ConfigError `OUT_PLACE`
 */
export async function initAccounting(config: Config): Promise<{file: string; programs: string[]}> {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  const file = mappingFileOf(config)
  const release = findCurrentRelease(folder)
  const found = release ? await readPrograms(release) : []
  const programs = found.filter((program) => program !== null)
  try {
    writeFileSync(file, `${JSON.stringify(draftMapping(programs), null, 2)}\n`, {flag: 'wx'})
  } catch (cause) {
    if (codeOf(cause) !== 'EEXIST') throw cause
    throw newError('OUT_PLACE', `Account mapping '${file}' is there already.`, {
      kept: 'It was not changed.',
      next: 'Edit it; docs/accounting.md describes every field.',
      cause,
    })
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
  if (!hasStateDb(folder)) return [{since: FIRST_PERIOD, mapping, movesBalances: false}]
  using stateDb = openStateDb(folder.stateDb)
  return listMappingVersions(stateDb, mapping, asOf.slice(0, 7))
}
