import {z} from 'zod'
import type {Model} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {createModelError} from './model-error.ts'
import {findCall, findTableFunctions, type ParsedSelect, walkTree} from './table-references.ts'

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

const nameRow = z.object({name: z.string()})
const boundCall = z.object({expression_class: z.literal('BOUND_FUNCTION'), name: z.string()})

/** The functions whose result changes from one statement to the next. */
export async function listChangingFunctions(db: Database): Promise<Set<string>> {
  const rows = await db.all(
    nameRow,
    `select distinct function_name as name from duckdb_functions()
     where stability in ('VOLATILE', 'CONSISTENT_WITHIN_QUERY') and function_name <> 'error'`,
  )
  return new Set(rows.map(({name}) => name))
}

/**
 * Holds that a model is a function of what it reads: it asks neither for the time, nor for chance, nor for a file, so
 * that a release can be built again.
 *
 * @param bound its SELECT, the engine's bound plan, and what {@link listChangingFunctions} found
 * @throws CheckError `MODEL_UNREPEATABLE`, with file and line
 */
export function requireRepeatable(
  model: Model,
  {select, plan, changing}: {select: ParsedSelect; plan: unknown; changing: ReadonlySet<string>},
): void {
  const table = findTableFunctions(select).find(({name}) => !PURE_TABLE_FUNCTIONS.includes(name))
  if (table) throw describeCall(model, table.name, table.line)
  const called = new Set<string>()
  walkTree(plan, (node) => {
    if (!('name' in node && changing.has(String(node.name)))) return
    const call = boundCall.safeParse(node).data
    if (call) called.add(call.name)
  })
  const [name] = [...called].sort()
  if (name !== undefined) throw describeCall(model, name, findCall(select, name))
}

function describeCall(model: Model, name: string, line: number): Error {
  return createModelError(
    'MODEL_UNREPEATABLE',
    {file: model.file, line},
    {
      problem: `${name}() of model '${model.name}' gives another result on another day or machine: expected a release that can be built again, from models, seeds, raw tables and getvariable('as_of') alone,`,
    },
  )
}
