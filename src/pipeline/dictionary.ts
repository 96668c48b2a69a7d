import {JOURNAL_NAMES, PROFILE_NAMES} from '../accounting/journal-profiles.ts'
import type {Config} from '../config.ts'
import {compileModels} from '../model/compile-models.ts'
import {
  type Dictionary,
  type DictionaryCheck,
  type DictionaryTable,
  renderDictionary,
} from '../page/dictionary-page.ts'
import {findCurrentRelease} from '../release/manifest.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import {type Checking, findLastChecking} from '../state/checkings.ts'
import {hasStateDb, openStateDb} from '../state/state-db.ts'
import type {BuildPlan, Check, Model, Seed, World} from '../types.ts'
import {GENERATOR} from '../version.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {findKnownFields} from './fields-file.ts'
import {readSources} from './sources.ts'

/** The data dictionary of the models there are, with the rows and times of the current release and the last checks. */
export async function describeTables(folder: DataFolder, config: Config, world: World): Promise<string> {
  const sources = readSources(config, await findKnownFields(folder))
  const plan = await compileModels(sources, world)
  const manifest = findCurrentRelease(folder)?.manifest
  const checking = readLastChecking(folder)
  const dictionary: Dictionary = {
    generator: GENERATOR,
    release: manifest ?? null,
    checked: checking ?? null,
    tables: [
      ...plan.models.map((model) => describeModel(model, plan, manifest)).toSorted(byName),
      ...plan.seeds.map((seed) => describeSeed(seed, plan)),
    ],
    checks: sources.checks.map((check) => describeCheck(check, plan, checking)),
  }
  return renderDictionary(dictionary)
}

function readLastChecking(folder: DataFolder): Checking | undefined {
  if (!hasStateDb(folder)) return undefined
  using stateDb = openStateDb(folder.stateDb)
  return findLastChecking(stateDb)
}

/** The order of the contents: what analysts read first, what serves the build last. */
const SCHEMAS = ['core', 'mart', 'accounting']

function byName(a: DictionaryTable, b: DictionaryTable): number {
  const place = ({name, kind}: DictionaryTable) => {
    const known = SCHEMAS.indexOf(name.split('.')[0] ?? '')
    return kind === 'work' ? SCHEMAS.length + 1 : known === -1 ? SCHEMAS.length : known
  }
  return place(a) - place(b) || (a.name < b.name ? -1 : 1)
}

function describeModel(
  model: Model,
  plan: BuildPlan,
  manifest: ReleaseManifest | undefined,
): DictionaryTable {
  const {name, description, grain, isPublished} = model
  const types = new Map(plan.columns.get(name)?.map((column) => [column.name, column.type]))
  const built = manifest?.models.find((entry) => entry.name === name)
  return {
    name,
    kind: isPublished ? 'model' : 'work',
    description,
    grain,
    columns: model.columns.map((column) => ({
      name: column.name,
      type: types.get(column.name) ?? '',
      meaning: column.meaning,
    })),
    reads: plan.reads.get(name) ?? [],
    readBy: listReaders(name, plan),
    rows: built?.rows ?? null,
    durationMs: built?.duration_ms ?? null,
    exports: isPublished ? listProfiles(name) : [],
  }
}

const JOURNAL_TABLES = ['accounting.journal_line', 'accounting.opening_line']

/** The table profiles take every published table, the journals are made of two. */
function listProfiles(table: string): string[] {
  return PROFILE_NAMES.filter((profile) => !JOURNAL_NAMES.includes(profile) || JOURNAL_TABLES.includes(table))
}

function describeSeed({name: seed}: Seed, plan: BuildPlan): DictionaryTable {
  const name = `seed.${seed}`
  const columns = plan.columns.get(name) ?? []
  return {
    name,
    kind: 'seed',
    description: `Reference data from seeds/${seed}.csv; a file of that name in LOANTAPE_SQL_DIR adds its lines, each in place of the one with its key.`,
    grain: columns.slice(0, 1).map((column) => column.name),
    columns: columns.map((column) => ({...column, meaning: ''})),
    reads: [],
    readBy: listReaders(name, plan),
    rows: null,
    durationMs: null,
    exports: [],
  }
}

const listReaders = (name: string, {reads}: BuildPlan) =>
  [...reads.keys()].filter((reader) => reads.get(reader)?.includes(name)).toSorted()

function describeCheck(check: Check, plan: BuildPlan, checking: Checking | undefined): DictionaryCheck {
  const {name, severity, description} = check
  const failure = checking?.failed.find((entry) => entry.name === name)
  const found = severity === 'error' ? 'failed' : 'warned'
  return {
    name,
    severity,
    description,
    tables: [...new Set(plan.checkReads.get(name))],
    result: checking === undefined ? 'unknown' : failure ? found : 'passed',
    failures: failure?.failures ?? 0,
    ids: failure?.ids ?? [],
  }
}
