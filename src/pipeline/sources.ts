import {statSync} from 'node:fs'
import {createAccountSeed} from '../accounting/account-seed.ts'
import {readChecks} from '../check/read-checks.ts'
import type {Config} from '../config.ts'
import type {KnownField} from '../contract/mapped-field.ts'
import {newError} from '../errors.ts'
import {markChecks} from '../model/changed-deals.ts'
import {createMappedModels} from '../model/mapped-models.ts'
import {BUILT_IN_SQL, readModels} from '../model/read-models.ts'
import {readSeeds} from '../model/seeds.ts'
import {selectModels, withAncestors} from '../model/select-models.ts'
import type {BuildPlan, Check, Model, Seed} from '../types.ts'
import {readMappingVersions} from './account-mapping.ts'

/** What a release is built from beside the history. */
export interface Sources {
  models: Model[]
  seeds: Seed[]
  checks: Check[]
}

/**
 * The built-in models, checks and seeds, the user's own, the accounts of `accounting.json`, and the tables of mapped fields.
 *
 * @param fields those that the warehouse knows
 * @param asOf what the release is for: accounts of later periods are left out
 * @throws ConfigError `SQL_DIR_MISSING`; CheckError when a file of theirs cannot be read
 */
export function readSources(config: Config, fields: readonly KnownField[], asOf?: string): Sources {
  const {sqlDir} = config
  if (sqlDir !== undefined && !statSync(sqlDir, {throwIfNoEntry: false})?.isDirectory()) {
    throw newError('SQL_DIR_MISSING', `Folder '${sqlDir}' in LOANTAPE_SQL_DIR is not there, or is no folder.`)
  }
  const folders = sqlFoldersOf(config)
  const mapped = createMappedModels(fields)
  const models = [...readModels(folders), ...mapped.models]
  const accounts = createAccountSeed(readMappingVersions(config, asOf))
  const seeds = [...readSeeds(folders).filter(({name}) => name !== accounts.name), accounts]
  return {models, seeds, checks: [...readChecks(models, folders), ...mapped.checks]}
}

/** The folders of SQL, the built-in one first. */
export function sqlFoldersOf({sqlDir}: Pick<Config, 'sqlDir'>): string[] {
  return [BUILT_IN_SQL, ...(sqlDir === undefined ? [] : [sqlDir])]
}

/** What is built for a selection. */
export interface SelectionPlan {
  plan: Pick<BuildPlan, 'models' | 'seeds' | 'reads' | 'columns'>
  /** The checks of the selected models that can be run on what is built. */
  checks: readonly Check[]
  /** Tables that are built for the selected ones and not kept. */
  dropped: string[]
}

/**
 * Plans the building of some models: with them what they are built from, which is dropped again, and every check that
 * reads one of them and nothing that is not built. Without a selection all of it is built.
 *
 * @throws ConfigError `USAGE`, `UNKNOWN_NAME`
 */
export function planSelection(
  whole: BuildPlan,
  checks: readonly Check[],
  selection: string | undefined,
): SelectionPlan {
  if (selection === undefined) return {plan: whole, checks: markChecks(checks, whole), dropped: []}
  const selected = selectModels(selection, whole.reads)
  const needed = withAncestors(selected, whole.reads)
  const isBuilt = (table: string) => needed.has(table) || !whole.reads.has(table)
  const models = whole.models.filter(({name}) => needed.has(name))
  return {
    plan: {...whole, models},
    checks: checks.filter(({name}) => {
      const tables = whole.checkReads.get(name) ?? []
      return tables.some((table) => selected.has(table)) && tables.every(isBuilt)
    }),
    dropped: models.filter(({name, isPublished}) => isPublished && !selected.has(name)).map(({name}) => name),
  }
}
