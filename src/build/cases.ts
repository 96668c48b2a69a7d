import {availableParallelism, tmpdir} from 'node:os'
import {basename, dirname, join, relative} from 'node:path'
import {LineCounter, parseDocument, type Scalar, type YAMLMap} from 'yaml'
import {z} from 'zod'
import {STREAMS} from '../contract/streams.ts'
import {businessDateOf, isCalendarDate, parseInstant} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {isOfKind, LoantapeError, messageOf, newError} from '../core/errors.ts'
import {describeIssues} from '../core/json.ts'
import {expectOneOf} from '../core/text.ts'
import type {BuildPlan, World} from '../core/types.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {type Database, openDatabase, quoteLiteral, quoteName} from '../store/database.ts'
import {listFilesBelow} from '../store/files.ts'
import {listFiles, readColumns, readSqlFile} from '../store/sql.ts'
import {migrate} from '../store/warehouse.ts'
import {readMappedFields} from '../sync/mapped-fields.ts'
import {limitBuild} from './build.ts'
import {type BuildOptions, buildModels, type Counted} from './build-models.ts'
import {aRow, type History, insertHistory, type Row} from './case-rows.ts'
import {compileModels} from './compile.ts'
import {withAncestors} from './read-models.ts'
import {parseSeed, replaceSeeds} from './seeds.ts'
import {readSources} from './sources.ts'

/** Values are text, so that `100.00` and `2026-03-02` stay as written. The word `null` means null. */
const value = z
  .string("expected a text, a number or a date; null for none, '' for an empty text")
  .transform((text) => (text === 'null' ? null : text))
const row = z.record(z.string(), value)

const FATES = ['missing', 'vanished', 'quarantined', 'confirmed'] as const
const shown = z.union([z.enum(FATES), row], `expected columns with values, or ${FATES.join(', ')}`)

/** Records by deal, then by the child's own id. */
const lists = z
  .record(
    z.string(),
    z.union([z.literal('failed'), z.record(z.string(), shown)], 'expected records, or failed'),
  )
  .default({})

const CHILDREN = STREAMS.filter(({parent}) => parent)

const walk = z
  .object({
    /** Columns of `raw.walk`; `none` if no walk certifies the records, as between two walks. */
    certificate: z.union([z.literal('none'), row], 'expected columns of raw.walk, or none').default({}),
    drift: z.array(row).default([]),
    rates: z.array(row).default([]),
    /** The lists of each child stream, by its plural. */
    ...Object.fromEntries(CHILDREN.map(({plural}) => [plural, lists])),
  })
  .catchall(shown)

const walks = z.record(
  z.string().refine((key) => isCalendarDate(key) || (key.includes('T') && parseInstant(key) !== null)),
  walk,
  'expected walks by their business day such as 2026-03-31, or an instant such as 2026-03-31T05:30-04:00',
)

const caseFile = z.record(
  z.string(),
  z.strictObject({
    walks,
    /** All rows expected; only the columns named here are compared. */
    rows: z
      .array(row, 'expected the rows of the table as a list, [] if it has none')
      .superRefine((rows, {addIssue}) => {
        const [first = {}] = rows
        const columnsOf = (one: object) => Object.keys(one).sort().join()
        const columns = Object.keys(first).join(', ')
        const at = rows.findIndex((one) => columns === '' || columnsOf(one) !== columnsOf(first))
        const message =
          columns === ''
            ? 'expected columns with values'
            : `expected the columns of the first row, ${columns}`
        if (at !== -1) addIssue({code: 'custom', path: [at], message})
      }),
    /** SQL that limits the rows compared. */
    where: z.string().default('true'),
    /** The business day; by default the last one of the case. */
    as_of: z.string().refine(isCalendarDate, 'expected a business day such as 2026-03-31').optional(),
    known_at: z.string().default('9999-12-31 00:00:00'),
    /** CSV text by seed name; replaces that seed. */
    seeds: z.record(z.string(), z.string()).default({}),
  }),
  'expected the names of cases, below each its `walks` and `rows`',
)

type ModelCase = z.output<typeof caseFile>[string] & {
  table: string
  name: string
  file: string
  line: number
}

/**
 * The files of all tables, or of one.
 * @throws CheckError `TEST_FILE` if the folder holds any other file, unless it is hidden, than `tests/<schema>.<table>.yaml`;
 *   ConfigError `UNKNOWN_NAME`
 */
function listCaseFiles(folder: string, table?: string): string[] {
  const tests = join(folder, 'tests')
  const seen = listFilesBelow(tests).filter((file) => !file.slice(tests.length).includes('/.'))
  const stray = seen.find((file) => dirname(file) !== tests || !file.endsWith('.yaml'))
  if (stray) {
    const problem = `File '${relative(folder, stray)}' in ${folder}: expected tests/<schema>.<table>.yaml; a SELECT of wrong rows is a check and belongs in checks/<name>.sql.`
    throw newError('TEST_FILE', problem)
  }
  const files = listFiles(tests, '.yaml')
  if (table === undefined) return files
  const own = files.filter((file) => tableOf(file) === table)
  if (own.length > 0) return own
  const problem = `Table '${table}' has no tests/${table}.yaml in LOANTAPE_SQL_DIR: ${expectOneOf(table, files.map(tableOf))}.`
  throw newError('UNKNOWN_NAME', problem, {next: '`loantape test` without a name runs all.'})
}

const tableOf = (file: string) => basename(file, '.yaml')

/** @throws CheckError `TEST_FILE` naming every problem found */
function readCases(files: readonly string[], {models}: Pick<BuildPlan, 'models'>): ModelCase[] {
  const tables = models.map(({name}) => name).sort()
  const problems: string[] = []
  const cases = files.flatMap((file) => {
    const table = tableOf(file)
    try {
      if (!tables.includes(table)) throw new Error(`no model '${table}', ${expectOneOf(table, tables)}`)
      return parseCases(readSqlFile(file)).map((one) => ({...one, table, file}))
    } catch (error) {
      problems.push(`${file}: ${error instanceof LoantapeError ? error.problem : messageOf(error)}`)
      return []
    }
  })
  if (problems.length === 0) return cases
  throw newError('TEST_FILE', `Tests that cannot be read:\n${problems.map((one) => `  - ${one}\n`).join('')}`)
}

function parseCases(text: string): Omit<ModelCase, 'table' | 'file'>[] {
  const lineCounter = new LineCounter()
  const document = parseDocument<YAMLMap.Parsed<Scalar.Parsed>>(text, {schema: 'failsafe', lineCounter})
  const [broken] = document.errors
  if (broken) throw new Error(broken.message.split('\n')[0])
  const {data, error} = caseFile.safeParse(document.toJS())
  if (error) throw new Error(describeIssues(error).join('; '))
  return Object.entries(data).map(([name, one]) => {
    const {key} = document.contents?.items.find((item) => item.key.value === name) ?? {}
    return {...one, name, line: lineCounter.linePos(key?.range[0] ?? 0).line}
  })
}

const MINUTE = 60_000
const timestamp = (instant: number) => new Date(instant).toISOString().replace('T', ' ').replace('Z', '')

/** A record repeats these columns in each list row. */
const LISTED = new Set(
  STREAMS.flatMap(({columns}) => columns.filter(({mayBeAbsent}) => !mayBeAbsent).map(({name}) => name)),
)

/**
 * A record that appears again keeps its listed fields unless the case gives new ones. `mapped` are the mapped fields that are
 * not named like a column of a deal.
 */
function buildCaseHistory(
  walks: ModelCase['walks'],
  {zone, mapped}: Pick<Bench, 'zone' | 'mapped'>,
): History {
  const history: History = {}
  const lastListed = new Map<string, Row>()
  const add: AddRow = (table, draft) => {
    const record = JSON.stringify([table, draft.deal_id, ...CHILDREN.map(({name}) => draft[`${name}_id`])])
    const told = {...lastListed.get(record), ...draft}
    const listed = Object.entries(told).filter(([column]) => LISTED.has(column))
    lastListed.set(record, Object.fromEntries(listed))
    history[table] = [...(history[table] ?? []), aRow(table, told)]
  }
  for (const [key, {certificate, drift, rates, ...named}] of Object.entries(walks)) {
    const startedAt = Date.parse(key.includes('T') ? key : `${key}T02:00:00Z`)
    const day = key.includes('T') ? businessDateOf(startedAt, zone) : key
    const [started_at, observed_at, ended_at, recorded_at] = [0, 5, 10, 30].map((minute) =>
      timestamp(startedAt + minute * MINUTE),
    )
    const times = {observed_at, recorded_at}
    const walk_id = `walk ${key}`
    if (certificate !== 'none') add('walk', {day, walk_id, started_at, ended_at, recorded_at, ...certificate})
    for (const {stream = 'deal', ...found} of drift)
      add('drift', {stream, walk_id: stream === 'deal' ? walk_id : `${walk_id} ${stream}`, ...found})
    for (const rate of rates) add('rate', {day, ...rate})
    for (const [deal_id, fate] of Object.entries(named)) {
      if (CHILDREN.some(({plural}) => plural === deal_id)) continue
      if (fate === 'quarantined') {
        const settled = certificate === 'none' ? null : {recorded_at, ...certificate}.recorded_at
        add('quarantine', {day, record_id: deal_id, observed_at, recorded_at: settled})
      } else if (fate === 'confirmed') add('deal_confirmation', {day, deal_id, ...times})
      else {
        const told = Object.entries(typeof fate === 'string' ? {kind: fate} : fate)
        const own = told.filter(([name]) => !mapped.has(name))
        const isKnown = history.deal_version?.some((version) => version.deal_id === deal_id)
        // A mapped field that changes alone makes no version.
        if (own.length > 0 || told.length === 0 || !isKnown)
          add('deal_version', {day, deal_id, ...times, ...Object.fromEntries(own)})
        for (const [name, value] of told)
          if (mapped.has(name)) add('deal_extra', {day, deal_id, ...times, name, value})
      }
    }
    for (const {name, plural} of CHILDREN)
      addLists(add, name, named[plural] as z.output<typeof lists>, {day, startedAt, night: walk_id})
  }
  return history
}

type AddRow = (table: string, draft: Row & {day?: string}) => void

function addLists(
  add: AddRow,
  stream: string,
  read: z.output<typeof lists>,
  {day, startedAt, night}: {day: string; startedAt: number; night: string},
): void {
  if (Object.keys(read).length === 0) return
  const [observed_at, recorded_at] = [15, 40].map((minute) => timestamp(startedAt + minute * MINUTE))
  const walk_id = `${night} ${stream}`
  let inAll = 0
  for (const [parent_id, list] of Object.entries(read)) {
    const children = list === 'failed' ? [] : Object.entries(list)
    const count = (...fates: unknown[]) => children.filter(([, fate]) => fates.includes(fate)).length
    for (const [id, fate] of children) {
      if (fate === 'quarantined') continue
      const told = typeof fate === 'string' ? {kind: fate} : fate
      const of = {day, walk_id, deal_id: parent_id, observed_at, recorded_at, ...told}
      add(`${stream}_version`, {[`${stream}_id`]: id, ...of})
    }
    const outcome = list === 'failed' ? 'failed' : 'listed'
    const records = children.length - count('missing', 'vanished')
    const counted = {records, quarantined: count('quarantined')}
    add('listing', {walk_id, stream, parent_id, observed_at, outcome, ...counted})
    inAll += records
  }
  add('walk', {day, walk_id, stream, records: inAll, started_at: observed_at, recorded_at})
}

export type CaseResult = Awaited<ReturnType<typeof runCase>>

interface Bench {
  plan: BuildPlan
  zone: Pick<Counted, 'timeZone' | 'dayCutoff'>
  mapped: ReadonlySet<string>
  around: NonNullable<BuildOptions['around']>
}

async function runCase(db: Database, tested: ModelCase, bench: Bench) {
  const startedAt = performance.now()
  const {table, name, file, line} = tested
  let problem: string | null = null
  let differing: Awaited<ReturnType<typeof compareRows>> = {missing: [], unexpected: []}
  await db.run(
    `attach ':memory:' as release; attach ':memory:' as history; copy from database empty to history`,
  )
  try {
    await buildCase(db, tested, bench)
    differing = await compareRows(db, tested, bench.plan)
  } catch (error) {
    // A request to stop ends the whole run.
    if (error instanceof LoantapeError && !isOfKind(error, 'check')) throw error
    problem = error instanceof LoantapeError ? error.problem : (messageOf(error).split('\n\n')[0] ?? '')
  } finally {
    await db.run(`set search_path = 'memory.main'; detach release; detach history`)
  }
  const passed = problem === null && differing.missing.length + differing.unexpected.length === 0
  const duration_ms = Math.round(performance.now() - startedAt)
  return {table, name, file, line, passed, problem, ...differing, duration_ms}
}

async function buildCase(
  db: Database,
  {table, walks, seeds, as_of, known_at}: ModelCase,
  {plan, zone, mapped, around}: Bench,
): Promise<void> {
  const history = buildCaseHistory(walks, {zone, mapped})
  await insertHistory(db, history)
  const days = Object.values(history).flatMap((rows) => rows.map((row) => String(row.business_date ?? '')))
  const needed = withAncestors(new Set([table]), plan.reads)
  const models = plan.models
    .filter(({name}) => needed.has(name))
    // The tested model is published here even if it is a `work` model, so that its rows can be compared. Comments are not needed,
    // nor is anything for a next build.
    .map((model) => ({
      ...model,
      columns: [],
      isPerDeal: false,
      isPublished: model.isPublished || model.name === table,
    }))
  const own = Object.entries(seeds).map(([name, text]) => {
    const names = plan.seeds.map((seed) => seed.name)
    if (!names.includes(name)) throw newError('TEST_FILE', `No seed '${name}': ${expectOneOf(name, names)}.`)
    return parseSeed({name, file: `seeds.${name}`, text})
  })
  const read = new Set(models.flatMap(({name}) => plan.reads.get(name) ?? []))
  const used = replaceSeeds(plan.seeds, own).filter(({name}) => read.has(`seed.${name}`))
  const asOf = as_of ?? days.sort().at(-1)
  if (asOf === undefined)
    throw newError('TEST_FILE', 'No walk says which day it is: expected one, or `as_of`.')
  await buildModels(db, {...plan, models, seeds: used}, {asOf, knownAt: known_at, ...zone}, {around})
}

/** The rows that only one side has; if only the order differs, rows with their positions. */
async function compareRows(db: Database, {table, where, rows}: ModelCase, {models, columns}: BuildPlan) {
  const types = new Map(columns.get(table)?.map(({name, type}) => [name, type]))
  const names = Object.keys(rows[0] ?? Object.fromEntries(types))
  const named = names.map(quoteName).join(', ')
  const found = `select ${named} from ${table} where (${where}\n)`
  const wanted = rows.map((one) => {
    const cells = names.map((name) => literalOf(one[name] ?? null, types.get(name)))
    return `(${cells.join(', ')})`
  })
  const expected =
    wanted.length === 0 ? `${found} limit 0` : `from (values ${wanted.join(', ')}) as t (${named})`
  const {grain = [], order = []} = models.find(({name}) => name === table) ?? {}
  const compare = async (select: string) => {
    const onlyIn = (these: string, those: string) =>
      db.all(
        z.record(z.string(), z.string().nullable()),
        `select columns(*)::varchar
         from ((${select} from (${these})) except all (${select} from (${those}))) order by all`,
      )
    return {missing: await onlyIn(expected, found), unexpected: await onlyIn(found, expected)}
  }
  const diff = await compare('select *')
  const isSame = diff.missing.length + diff.unexpected.length === 0
  return isSame && order.join() !== grain.join() ? compare('select row_number() over () as place, *') : diff
}

/** Numbers are not quoted, so that no decimal is rounded away. */
function literalOf(text: string | null, type = 'varchar'): string {
  if (text === null) return `cast(null as ${type})`
  const isNumber = /^(DECIMAL|BIGINT|HUGEINT|DOUBLE)/.test(type) && /^-?\d+(\.\d+)?$/.test(text)
  return isNumber ? text : `cast(${quoteLiteral(text)} as ${type})`
}

export type Tested = Awaited<ReturnType<typeof testModels>>

/**
 * Runs the cases of the user's own folder, in parallel. Reads nothing from the warehouse.
 * @throws ConfigError `SQL_DIR_MISSING`, `UNKNOWN_NAME`; CheckError `TEST_FILE`, or if a model does not compile
 */
export async function testModels(config: Config, table: string | undefined, world: World) {
  const startedAt = performance.now()
  const {sqlDir} = config
  if (sqlDir === undefined) {
    const problem = 'LOANTAPE_SQL_DIR is not set: expected the folder of your own models.'
    const said = {kept: 'Nothing was tested.', next: 'Set it, then run `loantape test`.'}
    throw newError('SQL_DIR_MISSING', problem, said)
  }
  const fields = readMappedFields(dataFolderAt(config.dataDir)).map((field) => ({...field, since: null}))
  const plan = await compileModels(readSources(config, fields))
  const cases = readCases(listCaseFiles(sqlDir, table), plan)
  const spillDir = join(tmpdir(), `loantape-test-${process.pid}`)
  const results: CaseResult[] = []
  const queue = cases.entries()
  let done = 0
  const work = async () => {
    await using db = await openDatabase({threads: 1, attach: [{path: ':memory:', alias: 'empty'}]})
    await migrate(db, 'empty')
    const columns = (await readColumns(db, 'empty.raw.deal_version')).map(({name}) => name)
    const mapped = new Set(fields.map(({name}) => name).filter((name) => !columns.includes(name)))
    const around = await limitBuild(db, config, {spillDir, historyBytes: 0}, world)
    for (const [index, tested] of queue) {
      results[index] = await runCase(db, tested, {plan, zone: config, mapped, around})
      done += 1
      world.onProgress({step: 'cases', unit: 'cases', done, total: cases.length})
    }
  }
  const lanes = Math.min(availableParallelism(), cases.length)
  const ended = await Promise.allSettled(Array.from({length: lanes}, work))
  for (const lane of ended) if (lane.status === 'rejected') throw lane.reason
  const passed = results.filter((result) => result.passed).length
  const duration_ms = Math.round(performance.now() - startedAt)
  return {folder: join(sqlDir, 'tests'), passed, failed: results.length - passed, duration_ms, cases: results}
}
