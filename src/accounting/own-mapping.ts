import {existsSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import type {Config} from '../core/config.ts'
import {codeOf, newError} from '../core/errors.ts'
import type {Seed} from '../core/types.ts'
import {dataFolderAt, requireWritable} from '../store/data-folder.ts'
import {readWrittenText} from '../store/files.ts'
import {findCurrentRelease} from '../store/release.ts'
import {hasStateDb, openStateDb} from '../store/state-db.ts'
import {
  type Account,
  type AccountMapping,
  DEFAULT_MAPPING,
  draftMapping,
  FIRST_PERIOD,
  findPlaceholders,
  listEndings,
  type MappingVersion,
  mappingError,
  parseMapping,
} from './mapping.ts'
import {listMappingVersions} from './periods.ts'
import {readPrograms} from './read-journal.ts'

/**
 * The mapping for open periods: from `LOANTAPE_ACCOUNTING_FILE`, else from `accounting.json` in the data folder,
 * else the default.
 *
 * @throws ConfigError `ACCOUNTING_MAPPING` naming file and field
 */
export function readAccountMapping(config: Config): AccountMapping {
  return findOwnMapping(config) ?? DEFAULT_MAPPING
}

/**
 * The mapping of a folder that has one of its own; undefined if there is no file.
 *
 * @throws ConfigError `ACCOUNTING_MAPPING` naming file and field
 */
export function findOwnMapping(config: Config): AccountMapping | undefined {
  const file = mappingFileOf(config)
  if (config.accountingFile === undefined && !existsSync(file)) return undefined
  return parseMapping(
    readWrittenText(file, (problem, cause) => mappingError(file, [problem], cause)),
    file,
  )
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
      `Account mapping '${file}' does not exist: expected the accounts of your books.`,
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
    throw newError('OUT_PLACE', `Account mapping '${file}' already exists.`, {
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

const COLUMNS = [
  'account',
  'since',
  'role',
  'loan_program',
  'term',
  'account_code',
  'account_name',
  'moves_balances',
]

/**
 * `seed.account`: the accounts of every mapping, by the period from which it holds. It replaces
 * `sql/seeds/account.csv`, which is the default mapping.
 */
export function createAccountSeed(versions: readonly MappingVersion[]): Seed {
  const rows = versions.flatMap(({since, mapping, movesBalances}) =>
    listRoles(mapping).map(({role, program = null, term = null, account}) => {
      const key = `${since} ${role} ${program ?? term ?? ''}`.trim()
      return [
        key,
        since,
        role,
        program,
        term,
        account?.code ?? null,
        account?.name ?? null,
        `${movesBalances}`,
      ]
    }),
  )
  return {
    name: 'account',
    file: 'accounting.json',
    text: JSON.stringify(rows),
    types: {moves_balances: 'boolean'},
    columns: COLUMNS,
    isComputed: true,
    rows: rows.map((values) => ({values, line: 1, text: ''})),
  }
}

/** The role of an account: for one program, for one term of the roll-forward, or for all. */
interface Role {
  role: string
  program?: string
  term?: string
  /** Null if another system books it. */
  account: Account | null
}

function listRoles(mapping: AccountMapping): Role[] {
  const {receivable, clearing, opening = clearing} = mapping
  return [
    ...Object.entries(receivable).map(([program, account]) => ({role: 'receivable', program, account})),
    {role: 'clearing', account: clearing},
    {role: 'opening', account: opening},
    ...listEndings(mapping).map(({ending, account}) => ({
      role: account ? 'ended' : 'elsewhere',
      term: ending === 'other' ? 'ended_other' : ending,
      account,
    })),
  ]
}
