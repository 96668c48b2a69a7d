import {statSync} from 'node:fs'
import {noteSchema} from '../accounting/acts.ts'
import {listAccountRows} from '../accounting/mapping.ts'
import {listNotes} from '../accounting/notes.ts'
import {readMappingVersions} from '../accounting/periods.ts'
import type {KnownField} from '../contract/mapped-field.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import type {BuildPlan, Check, Model, ModelSource, Moment, Seed} from '../core/types.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {quoteName} from '../store/database.ts'
import {readQuery, SQL_DIR} from '../store/sql.ts'
import {hasStateDb, openStateDb} from '../store/state-db.ts'
import {markChecks} from './build-models.ts'
import {readChecks} from './checks.ts'
import {parseModel, readModels, selectModels, withAncestors} from './read-models.ts'
import {readSeeds} from './seeds.ts'

/**
 * `fields` are those that the warehouse knows. A release lacks accounts of later periods and notes written after its `moment`;
 * without one, there are all accounts and no notes.
 * @throws ConfigError `SQL_DIR_MISSING`; CheckError if one of the files cannot be read
 */
export function readSources(config: Config, fields: readonly KnownField[], moment?: Moment): ModelSource {
  const {sqlDir} = config
  if (sqlDir !== undefined && !statSync(sqlDir, {throwIfNoEntry: false})?.isDirectory()) {
    const problem = `Folder '${sqlDir}' in LOANTAPE_SQL_DIR does not exist or is not a folder.`
    throw newError('SQL_DIR_MISSING', problem)
  }
  const folders = sqlFoldersOf(config)
  const mapped = createMappedModels(fields)
  const models = [...readModels(folders), ...mapped.models]
  const accounts = listAccountRows(readMappingVersions(config, moment?.asOf))
  const computed = [
    computeSeed('account', {moves_balances: 'boolean'}, Object.keys(accounts[0] ?? {}), accounts),
    createNoteSeed(config, moment),
  ]
  const seeds = [...readSeeds(folders), ...computed]
  return {models, seeds, checks: [...readChecks(models, folders), ...mapped.checks]}
}

/** The notes written by the moment of a release; none without one. */
function createNoteSeed(config: Config, moment: Moment | undefined): Seed {
  const {stateDb} = dataFolderAt(config.dataDir)
  using opened = moment && hasStateDb({stateDb}) ? openStateDb(stateDb) : null
  const notes = opened ? listNotes(opened) : []
  const known = notes.filter(({at}) => at.slice(0, -1) <= (moment?.knownAt.replace(' ', 'T') ?? ''))
  const types = {note_no: 'bigint', replaces: 'bigint'}
  const rows = known.map((note) => ({
    ...note,
    note_no: `${note.note_no}`,
    replaces: note.replaces?.toString() ?? null,
  }))
  return {...computeSeed('note', types, Object.keys(noteSchema.shape), rows), isApart: true}
}

/** Its rows are valid. Columns are VARCHAR unless `types` says otherwise. */
function computeSeed(
  name: string,
  types: Seed['types'],
  columns: string[],
  rows: readonly Seed['rows'][number]['values'][],
): Seed {
  const file = `seed.${name}`
  return {
    name,
    file,
    text: JSON.stringify(rows.map(Object.values)),
    types,
    columns,
    optional: columns,
    isComputed: true,
    rows: rows.map((values) => ({values, file, line: 1})),
  }
}

/**
 * Statuses by what they mean for a deal. If the user's seeds cannot be read, these are the shipped statuses: the build reports
 * the fault, and the night's walk is not lost.
 */
export function readStatuses(config: Pick<Config, 'sqlDir'>) {
  const read = (folders: readonly string[]) => {
    const rows = readSeeds(folders).find(({name}) => name === 'status')?.rows ?? []
    const listOf = (...classes: string[]) =>
      rows.flatMap(({values}) => (classes.includes(values.class?.trim() ?? '') ? (values.status ?? []) : []))
    return {
      pipeline: listOf('pipeline'),
      settled: listOf('funded'),
      ended: listOf('ended_funded', 'ended_unfunded'),
    }
  }
  try {
    return read(sqlFoldersOf(config))
  } catch {
    return read([SQL_DIR])
  }
}

function sqlFoldersOf({sqlDir}: Pick<Config, 'sqlDir'>): string[] {
  return [SQL_DIR, ...(sqlDir === undefined ? [] : [sqlDir])]
}

/**
 * Builds selected models with everything they read; tables that were not selected are dropped again. A check runs if it reads a
 * selected model, and only models that are built.
 * @throws ConfigError `USAGE`, `UNKNOWN_NAME`
 */
export function planSelection(whole: BuildPlan, all: readonly Check[], selection: string | undefined) {
  const checks = markChecks(all, whole)
  if (selection === undefined) return {plan: whole, checks, dropped: [] as string[]}
  const selected = selectModels(selection, whole.reads)
  const needed = withAncestors(selected, whole.reads)
  const isBuilt = (table: string) => needed.has(table) || !whole.reads.has(table)
  const models = whole.models.filter(({name}) => needed.has(name))
  const ofSelected = checks.filter(({name}) => {
    const tables = whole.checkReads.get(name) ?? []
    return tables.some((table) => selected.has(table)) && tables.every(isBuilt)
  })
  const read = new Set([
    ...models.flatMap(({name}) => whole.reads.get(name) ?? []),
    ...ofSelected.flatMap(({name}) => whole.checkReads.get(name) ?? []),
  ])
  return {
    plan: {...whole, models, seeds: whole.seeds.filter(({name}) => read.has(`seed.${name}`))},
    checks: ofSelected,
    dropped: models.filter(({name, isPublished}) => isPublished && !selected.has(name)).map(({name}) => name),
  }
}

const FILE = 'fields.json'

export const MAPPED_TABLES: readonly string[] = ['core.deal_extra_history', 'core.deal_extra']

function createMappedModels(fields: readonly KnownField[]): {models: Model[]; checks: Check[]} {
  if (fields.length === 0) return {models: [], checks: []}
  const list = (told: (column: string, field: KnownField) => string, separator = ',\n    ') =>
    fields.map((field) => told(quoteName(field.name), field)).join(separator)
  const parts = {
    described: fields.map(describe).join('\n'),
    told: list(
      (column, {name, type}) =>
        `arg_max({'it': cast(case when name = '${name}' then value end as ${type}), 'is_readable': is_readable}, seq) filter (name = '${name}') as ${column}`,
    ),
    carried: list((column) => `last_value(${column} ignore nulls) over in_time as ${column}`),
    row: `row(${list((column) => column)})`,
    shown: list((column) => `${column}.it as ${column}`),
    unreadable: list((column, {name}) => `case when not ${column}.is_readable then '${name}' end`),
    latest: list((column) => `latest.${column}`, ',\n  '),
  }
  const models = MAPPED_TABLES.map((name) => {
    const text = readQuery(name.replace('core.', ''), parts)
    return parseModel({schema: 'core', name, file: FILE, text})
  })
  const check: Check = {
    name: 'mapped_fields_are_readable',
    severity: 'warn',
    description: 'Every value of a field that fields.json maps fits its type.',
    file: FILE,
    line: 1,
    sql: 'select deal_id, unreadable from core.deal_extra where unreadable is not null',
    isPerDeal: true,
  }
  return {models, checks: [check]}
}

function describe({name, path, type, meaning, since}: KnownField): string {
  const from = since === null ? '' : `; known for what was stored since ${since}`
  return `-- ${name}: ${meaning === '' ? 'as the record says' : meaning}; '${path.join('.')}' of a deal as ${type}${from}. Null when null, never named or unreadable`
}
