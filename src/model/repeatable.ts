import {z} from 'zod'
import type {Model} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {createModelError} from './model-error.ts'
import {findCall, findNodes, findTableFunctions, type ParsedSelect} from './table-references.ts'

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

/** Functions the engine takes for constant although they ask for the time or the machine. */
const TAKEN_FOR_CONSTANT = ['current_localtime', 'current_localtimestamp', 'current_setting']

/** Aggregates that add up: over a DOUBLE their result differs with the number of threads. */
const SUMS = ['sum', 'avg', 'mean', 'fsum', 'sumkahan', 'kahan_sum', 'favg']

const nameRow = z.object({name: z.string()})
const boundCall = z.object({
  expression_class: z.literal('BOUND_FUNCTION'),
  name: z.string(),
  arguments: z.array(z.unknown()),
  query_location: z.number(),
})
const boundSum = z.object({
  expression_class: z.enum(['BOUND_AGGREGATE', 'BOUND_WINDOW']),
  name: z.enum(SUMS),
  arguments: z.tuple([z.object({id: z.enum(['DOUBLE', 'FLOAT'])})], z.unknown()),
  children: z.array(z.object({alias: z.string().optional()})),
})

/** The functions whose result changes from one statement to the next; `age` does where it has but one argument. */
export async function listChangingFunctions(db: Database): Promise<Set<string>> {
  const rows = await db.all(
    nameRow,
    `select distinct function_name as name from duckdb_functions()
     where stability in ('VOLATILE', 'CONSISTENT_WITHIN_QUERY') and function_name <> 'error'`,
  )
  return new Set([...rows.map(({name}) => name), ...TAKEN_FOR_CONSTANT, 'age'])
}

/**
 * Holds that a model or a check reads tables alone, no file and nothing of the engine's. To be called before the engine binds it, which
 * opens files and tells their first line.
 *
 * @throws CheckError `MODEL_UNREPEATABLE`, with file and line
 */
export function requireTablesAlone(
  one: {name: string; file: string},
  kind: 'model' | 'check',
  select: ParsedSelect | undefined,
): void {
  if (!select) return
  const table = findTableFunctions(select).find(({name}) => !PURE_TABLE_FUNCTIONS.includes(name))
  if (table) throw describeCall(one, table.name, table.line, kind)
}

/**
 * Holds that a model is a function of what it reads: it asks neither for the time, nor for chance, so that a release can be
 * built again.
 *
 * @param bound its SELECT, the engine's bound plan, and what {@link listChangingFunctions} found
 * @throws CheckError `MODEL_UNREPEATABLE`, with file and line
 */
export function requireRepeatable(
  model: Model,
  {select, plan, changing}: {select: ParsedSelect; plan: unknown; changing: ReadonlySet<string>},
): void {
  const calls = findNodes(plan, boundCall)
    .filter(({name, arguments: given}) => changing.has(name) && !(name === 'age' && given.length > 1))
    .map(({name, query_location}) => [name, select.lineAt(query_location)] as const)
  // Of each function the last call counts.
  const [first] = [...new Map(calls)].sort()
  if (first) throw describeCall(model, ...first)
}

function describeCall(
  {name: of, file}: {name: string; file: string},
  name: string,
  line: number,
  kind: 'model' | 'check' = 'model',
): Error {
  return createModelError(
    'MODEL_UNREPEATABLE',
    {file, line},
    `${name}() of ${kind} '${of}' gives another result on another day or machine: expected a release that can be built again, from models, seeds, raw tables and getvariable('as_of') alone,`,
  )
}

/**
 * Holds that a model neither sums nor averages a DOUBLE or FLOAT, as aggregate or over a window.
 *
 * @param bound its SELECT, and the engine's bound plan, which knows the types
 * @throws CheckError `MODEL_INEXACT_SUM`, with file and line
 */
export function requireExactSums(model: Model, {select, plan}: {select: ParsedSelect; plan: unknown}): void {
  const [sum] = findNodes(plan, boundSum)
  if (!sum) return
  const of = sum.children[0]?.alias || '…'
  throw createModelError(
    'MODEL_INEXACT_SUM',
    {file: model.file, line: findCall(select, sum.name)},
    `${sum.name}(${of}) of model '${model.name}' adds up ${sum.arguments[0].id}: expected DECIMAL or whole numbers, whose sum does not depend on their order,`,
  )
}
