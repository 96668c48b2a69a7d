import {z} from 'zod'
import {findNearest} from '../nearest.ts'
import type {BuildPlan, Model} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {createModelError, type Place} from './model-error.ts'

/** A SELECT as the engine's own parser has it. */
export interface ParsedSelect {
  statements: readonly unknown[]
  /** The line, from 1, of one of the parser's positions. */
  lineAt(position: number): number
}

/** A table or function that a SELECT names, and the line at which it does. */
interface Named {
  name: string
  line: number
}

const nameRow = z.object({name: z.string()})
const jsonRow = z.object({json: z.string()})
const parsedSelect = z.object({
  error: z.boolean(),
  error_message: z.string().optional(),
  position: z.coerce.number().optional(),
  statements: z.array(z.unknown()).optional(),
})

/**
 * Parses files that hold one SELECT each, all in one statement.
 *
 * @returns the SELECTs by name
 * @throws CheckError `MODEL_SQL` when a file is not one SELECT, with file and line
 */
export async function parseSelects(
  db: Database,
  sources: readonly {name: string; file: string; sql: string}[],
): Promise<Map<string, ParsedSelect>> {
  const rows = await db.all(
    jsonRow,
    `select json_serialize_sql(sql)::varchar as json
     from (select unnest(from_json($1::varchar, '["varchar"]')) as sql)`,
    [JSON.stringify(sources.map(({sql}) => sql))],
  )
  const selects = new Map<string, ParsedSelect>()
  for (const [index, {name, file, sql}] of sources.entries()) {
    const parsed = parsedSelect.parse(JSON.parse(rows[index]?.json ?? '{}'))
    const lineAt = createLineFinder(sql)
    if (parsed.error) {
      const line = parsed.position === undefined ? 1 : lineAt(parsed.position)
      throw sqlError({file, line}, parsed.error_message)
    }
    const statements = parsed.statements ?? []
    if (statements.length !== 1) throw sqlError({file, line: 1}, `${statements.length} statements`)
    selects.set(name, {statements, lineAt})
  }
  return selects
}

/** The tables a SELECT reads; names of its CTEs are not among them. */
export function findTables({statements, lineAt}: ParsedSelect): Named[] {
  const ctes = findNodes(statements, ({cte_map}) => cte_map !== undefined).flatMap(
    ({cte_map}) => cte_map?.map.map(({key}) => key) ?? [],
  )
  return findNodes(statements, ({type}) => type === 'BASE_TABLE')
    .map(({schema_name, table_name = '', query_location = 0}) => ({
      name: schema_name ? `${schema_name}.${table_name}` : table_name,
      line: lineAt(query_location),
    }))
    .filter(({name}) => !ctes.includes(name))
}

/**
 * Sorts models so that each stands behind what it reads; where nothing decides, by name.
 *
 * @param selects each model's SELECT, by name
 * @param given tables that exist without a model: `raw.…` and `seed.…`
 * @returns the models in order, and what each of them reads: models, seeds and raw tables
 * @throws CheckError `MODEL_UNKNOWN_TABLE`, `MODEL_CYCLE`, with file and line
 */
export function orderModels(
  models: readonly Model[],
  selects: ReadonlyMap<string, ParsedSelect>,
  given: ReadonlySet<string>,
): Pick<BuildPlan, 'models' | 'reads'> {
  const byName = new Map(models.map((model) => [model.name, model]))
  const references = new Map<string, Named[]>()
  for (const model of models) {
    const select = selects.get(model.name)
    const read = [...(select ? findTables(select) : []), ...model.declaredDependencies]
    const unknown = read.find(({name}) => !byName.has(name) && !given.has(name))
    if (unknown) {
      const nearest = findNearest(unknown.name, [...byName.keys(), ...given])
      throw createModelError(
        'MODEL_UNKNOWN_TABLE',
        {file: model.file, line: unknown.line},
        `Unknown table '${unknown.name}': expected a model, a seed or a raw table, written as schema.table${nearest === undefined ? '' : `; the nearest is '${nearest}'`},`,
      )
    }
    references.set(model.name, read)
  }
  const reads = [...references].map(
    ([name, read]) => [name, [...new Set(read.map((table) => table.name))]] as const,
  )
  return {models: sortByReads(byName, references), reads: new Map(reads)}
}

function sortByReads(byName: Map<string, Model>, reads: Map<string, Named[]>): Model[] {
  const ordered = new Set<Model>()
  const visit = (model: Model, path: readonly string[]): void => {
    if (ordered.has(model)) return
    const chain = [...path, model.name]
    for (const {name, line} of reads.get(model.name) ?? []) {
      if (chain.includes(name)) {
        const cycle = [...chain.slice(chain.indexOf(name)), name].join(' → ')
        throw createModelError(
          'MODEL_CYCLE',
          {file: model.file, line},
          `Models read each other in a cycle, ${cycle}: expected an order,`,
        )
      }
      const read = byName.get(name)
      if (read) visit(read, chain)
    }
    ordered.add(model)
  }
  for (const name of [...byName.keys()].sort()) {
    const model = byName.get(name)
    if (model) visit(model, [])
  }
  return [...ordered]
}

/** Table functions whose rows come from their arguments alone; all others read files or the engine's own state. */
const PURE_TABLE_FUNCTIONS = [
  'range',
  'generate_series',
  'unnest',
  'repeat',
  'repeat_row',
  'json_each',
  'json_tree',
]

/**
 * Requires that a model or check reads tables alone. To be called before the engine binds it, which opens the files it names.
 *
 * @throws CheckError `MODEL_UNREPEATABLE`, with file and line
 */
export function requireTablesAlone(file: string, select: ParsedSelect | undefined): void {
  for (const {function: called, query_location = 0} of findNodes(
    select?.statements,
    ({type}) => type === 'TABLE_FUNCTION',
  )) {
    const name = called?.function_name.toLowerCase() ?? ''
    if (!PURE_TABLE_FUNCTIONS.includes(name))
      throw createUnrepeatable({file, line: select?.lineAt(query_location) ?? 1}, name)
  }
}

/** Functions the engine takes for constant although they ask for the time or the machine; `age` does where it has one argument. */
const TAKEN_FOR_CONSTANT = ['current_localtime', 'current_localtimestamp', 'current_setting', 'age']

/** The functions whose result changes from one statement to the next. */
export async function listChangingFunctions(db: Database): Promise<Set<string>> {
  const rows = await db.all(
    nameRow,
    `select distinct function_name as name from duckdb_functions()
     where stability in ('VOLATILE', 'CONSISTENT_WITHIN_QUERY') and function_name <> 'error'`,
  )
  return new Set([...rows.map(({name}) => name), ...TAKEN_FOR_CONSTANT])
}

/** Aggregates that add up: over a DOUBLE their result differs with the number of threads. */
const SUMS = ['sum', 'avg', 'mean', 'fsum', 'sumkahan', 'kahan_sum', 'favg']

/**
 * Requires that a model gives the same rows whenever it is built: it asks neither for the time nor for chance, and neither sums nor
 * averages a DOUBLE or FLOAT.
 *
 * @param changing what {@link listChangingFunctions} found
 * @throws CheckError `MODEL_UNREPEATABLE`, `MODEL_INEXACT_SUM`, with file and line
 */
export async function requireRepeatable(
  db: Database,
  {name: model, file, sql}: Model,
  {statements, lineAt}: ParsedSelect,
  changing: ReadonlySet<string>,
): Promise<void> {
  // The bound plan has macros resolved, and knows the types of what is summed.
  const {json} = await db.one(jsonRow, 'select json_serialize_plan($1::varchar)::varchar as json', [sql])
  const bound = findNodes(
    JSON.parse(json),
    ({expression_class}) => expression_class?.startsWith('BOUND_') === true,
  )
  for (const {expression_class, name = '', arguments: given = [], query_location = 0} of bound) {
    const isSum = expression_class !== 'BOUND_FUNCTION' && SUMS.includes(name)
    if (isSum && ['DOUBLE', 'FLOAT'].includes(given[0]?.id ?? '')) {
      const call = findNodes(statements, ({function_name}) => function_name?.toLowerCase() === name)[0]
      throw createModelError(
        'MODEL_INEXACT_SUM',
        {file, line: call ? lineAt(call.query_location ?? 0) : 1},
        `${name}() of model '${model}' adds up ${given[0]?.id}: expected DECIMAL or whole numbers, whose sum does not depend on their order,`,
      )
    }
    const isChanging = expression_class === 'BOUND_FUNCTION' && changing.has(name)
    if (isChanging && !(name === 'age' && given.length > 1))
      throw createUnrepeatable({file, line: lineAt(query_location)}, name)
  }
}

function createUnrepeatable(place: Place, name: string): Error {
  return createModelError(
    'MODEL_UNREPEATABLE',
    place,
    `${name}() gives another result on another day or machine: expected a release that can be built again, from models, seeds, raw tables and getvariable('as_of') alone,`,
  )
}

/** A node of the trees of the engine's parser and binder, as far as it is looked at. */
interface Node {
  type?: string
  query_location?: number
  schema_name?: string
  table_name?: string
  cte_map?: {map: {key: string}[]}
  function?: {function_name: string}
  function_name?: string
  expression_class?: string
  name?: string
  arguments?: {id: string}[]
}

/** Every node of a tree that is wanted, from the outside in. */
function findNodes(tree: unknown, isWanted: (node: Node) => boolean, found: Node[] = []): Node[] {
  if (typeof tree !== 'object' || tree === null) return found
  if (isWanted(tree)) found.push(tree)
  for (const child of Object.values(tree)) findNodes(child, isWanted, found)
  return found
}

/** Line numbers, from 1, of the parser's byte positions. */
function createLineFinder(sql: string): (position: number) => number {
  const bytes = Buffer.from(sql)
  return (position) => bytes.subarray(0, position).toString().split('\n').length
}

function sqlError(place: Place, words = 'no statement'): Error {
  return createModelError('MODEL_SQL', place, `A model must be exactly one SELECT: ${words},`)
}
