import {existsSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import type {Config} from '../config.ts'
import {
  type AccountMapping,
  DEFAULT_MAPPING,
  FIRST_PERIOD,
  type MappingVersion,
  parseMapping,
} from '../contract/mapping.ts'
import {ConfigError, codeOf} from '../errors.ts'
import {openLedger} from '../ledger/ledger.ts'
import {listMappingVersions} from '../ledger/periods.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'

/**
 * The mapping that holds for open periods: of `LOANTAPE_ACCOUNTING_FILE`, else of `accounting.json` in the data folder,
 * else the default.
 *
 * @throws ConfigError `ACCOUNTING_MAPPING` naming file and field
 */
export function readAccountMapping({accountingFile, dataDir}: Config): AccountMapping {
  const file = accountingFile ?? join(dataFolderAt(dataDir).root, 'accounting.json')
  if (accountingFile === undefined && !existsSync(file)) return DEFAULT_MAPPING
  return parseMapping(readText(file), file)
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (cause) {
    throw new ConfigError({
      code: 'ACCOUNTING_MAPPING',
      problem: `Account mapping '${file}' cannot be read (${codeOf(cause)}).`,
      kept: 'Nothing was released or exported.',
      next: 'Correct LOANTAPE_ACCOUNTING_FILE, or put the file there; docs/accounting.md shows one.',
      cause,
    })
  }
}

/**
 * Every mapping with the periods it holds for, as far as they matter to a release.
 *
 * @param asOf `YYYY-MM-DD`; all of them by default
 */
export function readMappingVersions(config: Config, asOf = '9999-12-31'): MappingVersion[] {
  const mapping = readAccountMapping(config)
  const folder = dataFolderAt(config.dataDir)
  if (!existsSync(folder.ledger)) return [{since: FIRST_PERIOD, mapping, movesBalances: false}]
  using ledger = openLedger(folder.ledger)
  return listMappingVersions(ledger, mapping, asOf.slice(0, 7))
}
