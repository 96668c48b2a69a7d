import {z} from 'zod'
import type {Database} from '../warehouse/database.ts'
import {createModelError, type Place} from './model-error.ts'

/** A table that a SELECT reads, and the line at which it is named. */
export interface TableReference {
  name: string
  line: number
}

/** A SELECT as the engine's own parser has it. */
export interface ParsedSelect {
  statements: readonly unknown[]
  /** The line, from 1, of one of the parser's positions. */
  lineAt(position: number): number
}

const parsedRow = z.object({json: z.string()})
const parsedSelect = z.object({
  error: z.boolean(),
  error_message: z.string().optional(),
  position: z.coerce.number().optional(),
  statements: z.array(z.unknown()).optional(),
})
const baseTable = z.object({
  type: z.literal('BASE_TABLE'),
  schema_name: z.string(),
  table_name: z.string(),
  query_location: z.number(),
})
const commonTables = z.object({cte_map: z.object({map: z.array(z.object({key: z.string()}))})})
const tableFunction = z.object({
  type: z.literal('TABLE_FUNCTION'),
  function: z.object({function_name: z.string()}),
  query_location: z.number(),
})
const functionCall = z.object({
  class: z.enum(['FUNCTION', 'WINDOW']),
  function_name: z.string(),
  query_location: z.number(),
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
    parsedRow,
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
export function findTables({statements, lineAt}: ParsedSelect): TableReference[] {
  const ctes = findNodes(statements, commonTables).flatMap(({cte_map}) => cte_map.map.map(({key}) => key))
  return findNodes(statements, baseTable)
    .map(({schema_name, table_name, query_location}) => ({
      name: schema_name === '' ? table_name : `${schema_name}.${table_name}`,
      line: lineAt(query_location),
    }))
    .filter(({name}) => !ctes.includes(name))
}

/** The table functions a SELECT reads from. */
export function findTableFunctions({statements, lineAt}: ParsedSelect): TableReference[] {
  return findNodes(statements, tableFunction).map((call) => ({
    name: call.function.function_name.toLowerCase(),
    line: lineAt(call.query_location),
  }))
}

/** The line of the first call of a function, as written; 1 where it is not called by this name. */
export function findCall({statements, lineAt}: ParsedSelect, name: string): number {
  const calls = findNodes(statements, functionCall)
  const call = calls.find(({function_name}) => function_name.toLowerCase() === name)
  return call ? lineAt(call.query_location) : 1
}

/** Every object of this form in a tree of JSON values, from the outside in. */
export function findNodes<Form extends z.ZodObject>(tree: unknown, form: Form): z.output<Form>[] {
  const keys = Object.keys(form.shape)
  // Most objects lack a key: that is found faster than a schema parses.
  const candidates = findObjects(tree, (node) => keys.every((key) => key in node))
  return candidates.flatMap((node) => {
    const {data} = form.safeParse(node)
    return data === undefined ? [] : [data]
  })
}

/** Every object of a tree of JSON values that is wanted, itself and from the outside in. */
export function findObjects<Node extends object>(tree: unknown, isWanted: (node: Node) => boolean): Node[] {
  const found: Node[] = []
  const visit = (node: unknown): void => {
    if (typeof node !== 'object' || node === null) return
    if (isWanted(node as Node)) found.push(node as Node)
    for (const child of Object.values(node)) visit(child)
  }
  visit(tree)
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
