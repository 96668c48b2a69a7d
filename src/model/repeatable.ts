import {z} from 'zod'
import type {Model} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {createModelError} from './model-error.ts'
import {findTableFunctions, type ParsedSelect, walkTree} from './table-references.ts'

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

const nameRow = z.object({name: z.string()})
const boundCall = z.object({
  expression_class: z.literal('BOUND_FUNCTION'),
  name: z.string(),
  arguments: z.array(z.unknown()),
  query_location: z.number(),
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
  const lines = new Map<string, number>()
  walkTree(plan, (node) => {
    if (!('name' in node && changing.has(String(node.name)))) return
    const call = boundCall.safeParse(node).data
    if (call === undefined || (call.name === 'age' && call.arguments.length > 1)) return
    lines.set(call.name, select.lineAt(call.query_location))
  })
  const [first] = [...lines].sort()
  if (first) throw describeCall(model, ...first)
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
