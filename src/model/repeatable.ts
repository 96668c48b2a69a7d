import {z} from 'zod'
import type {Model} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {createModelError} from './model-error.ts'
import {findCall, findTableFunctions, walkTree} from './table-references.ts'

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

const planRow = z.object({json: z.string()})
const nameRow = z.object({name: z.string()})
const boundCall = z.object({expression_class: z.literal('BOUND_FUNCTION'), name: z.string()})

/**
 * Holds that a model is a function of what it reads: it asks neither for the time, nor for chance, nor for a file, so
 * that a release can be built again. What the model reads must exist.
 *
 * @throws CheckError `MODEL_UNREPEATABLE`, with file and line
 */
export async function requireRepeatable(db: Database, model: Model): Promise<void> {
  const table = (await findTableFunctions(db, model)).find(({name}) => !PURE_TABLE_FUNCTIONS.includes(name))
  if (table) throw describeCall(model, table.name, table.line)
  const {json} = await db.one(planRow, 'select json_serialize_plan($1::varchar)::varchar as json', [
    model.sql,
  ])
  const called = new Set<string>()
  walkTree(JSON.parse(json), (node) => {
    const call = boundCall.safeParse(node).data
    if (call) called.add(call.name)
  })
  const [changing] = await db.all(
    nameRow,
    `select distinct function_name as name from duckdb_functions()
     where stability in ('VOLATILE', 'CONSISTENT_WITHIN_QUERY') and function_name <> 'error'
       and list_contains(from_json($1::varchar, '["varchar"]'), function_name)
     order by name`,
    [JSON.stringify([...called])],
  )
  if (changing) throw describeCall(model, changing.name, await findCall(db, model, changing.name))
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
