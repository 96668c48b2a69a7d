import {statSync} from 'node:fs'
import {readChecks} from '../check/read-checks.ts'
import type {Config} from '../config.ts'
import type {KnownField} from '../contract/mapped-field.ts'
import {newError} from '../errors.ts'
import {createAccountSeed} from '../model/account-seed.ts'
import {createMappedModels} from '../model/mapped-models.ts'
import {BUILT_IN_SQL, readModels} from '../model/read-models.ts'
import {readSeeds} from '../model/seeds.ts'
import type {Check, Model, Seed} from '../types.ts'
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
  const folders = [BUILT_IN_SQL, ...(sqlDir === undefined ? [] : [sqlDir])]
  const mapped = createMappedModels(fields)
  const models = [...readModels(folders), ...mapped.models]
  const accounts = createAccountSeed(readMappingVersions(config, asOf))
  const seeds = [...readSeeds(folders).filter(({name}) => name !== accounts.name), accounts]
  return {models, seeds, checks: [...readChecks(models, folders), ...mapped.checks]}
}
