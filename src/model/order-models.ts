import {z} from 'zod'
import type {Model} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {createModelError, type Place} from './model-error.ts'

/** A table that a SELECT reads, and the line at which it is named. */
interface TableReference {
  name: string
  line: number
}

const parsedRow = z.object({json: z.string()})
const parsedSelect = z.object({
  error: z.boolean(),
  error_message: z.string().optional(),
  error_type: z.string().optional(),
  position: z.coerce.number().optional(),
  statements: z.array(z.unknown()).optional(),
})
const baseTable = z.object({
  type: z.literal('BASE_TABLE'),
  schema_name: z.string(),
  table_name: z.string(),
  query_location: z.number(),
})
const commonTableExpressions = z.object({map: z.array(z.object({key: z.string()}))})

/**
 * Sorts models so that each stands behind what it reads; where nothing decides, by name.
 *
 * @param given tables that exist without a model: `raw.…` and `seed.…`
 * @throws CheckError `MODEL_SQL` when a file is not one SELECT, `MODEL_UNKNOWN_TABLE`, `MODEL_CYCLE`, with file and line
 */
export async function orderModels(
  db: Database,
  models: readonly Model[],
  given: ReadonlySet<string>,
): Promise<Model[]> {
  const byName = new Map(models.map((model) => [model.name, model]))
  const reads = new Map<string, TableReference[]>()
  for (const model of models) {
    const references = [...(await findTables(db, model)), ...model.declaredDependencies]
    for (const {name, line} of references) {
      if (byName.has(name) || given.has(name)) continue
      throw createModelError(
        'MODEL_UNKNOWN_TABLE',
        {file: model.file, line},
        {
          problem: `Unknown table '${name}': expected a model, a seed or a raw table, written as schema.table,`,
        },
      )
    }
    reads.set(
      model.name,
      references.filter(({name}) => byName.has(name)),
    )
  }
  return sortByReads(byName, reads)
}

function sortByReads(byName: Map<string, Model>, reads: Map<string, TableReference[]>): Model[] {
  const ordered = new Set<Model>()
  const visit = (model: Model, path: readonly string[]): void => {
    if (ordered.has(model)) return
    for (const {name, line} of reads.get(model.name) ?? []) {
      const chain = [...path, model.name]
      if (chain.includes(name)) {
        const cycle = [...chain.slice(chain.indexOf(name)), name].join(' → ')
        throw createModelError(
          'MODEL_CYCLE',
          {file: model.file, line},
          {
            problem: `Models read each other in a cycle, ${cycle}: expected an order,`,
          },
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

/** The tables a model's SELECT reads, from the engine's own parser; names of its CTEs are not among them. */
async function findTables(db: Database, model: Model): Promise<TableReference[]> {
  const row = await db.first(parsedRow, 'select json_serialize_sql($1::varchar)::varchar as json', [
    model.sql,
  ])
  const parsed = parsedSelect.parse(JSON.parse(row?.json ?? '{}'))
  const lineAt = createLineFinder(model.sql)
  if (parsed.error) {
    throw sqlError(
      {file: model.file, line: parsed.position === undefined ? 1 : lineAt(parsed.position)},
      parsed.error_message,
    )
  }
  if (parsed.statements?.length !== 1) {
    throw sqlError({file: model.file, line: 1}, `${parsed.statements?.length ?? 0} statements`)
  }
  const tables: TableReference[] = []
  const cteNames = new Set<string>()
  walk(parsed.statements, (node) => {
    const table = baseTable.safeParse(node)
    if (table.success) {
      const {schema_name, table_name, query_location} = table.data
      tables.push({
        name: schema_name === '' ? table_name : `${schema_name}.${table_name}`,
        line: lineAt(query_location),
      })
    }
    if ('cte_map' in node) {
      for (const {key} of commonTableExpressions.parse(node.cte_map).map) cteNames.add(key)
    }
  })
  return tables.filter(({name}) => !cteNames.has(name))
}

function walk(node: unknown, visit: (node: object) => void): void {
  if (typeof node !== 'object' || node === null) return
  visit(node)
  for (const child of Object.values(node)) walk(child, visit)
}

/** Line numbers, from 1, of the parser's byte positions. */
function createLineFinder(sql: string): (position: number) => number {
  const bytes = Buffer.from(sql)
  return (position) => bytes.subarray(0, position).toString().split('\n').length
}

function sqlError(place: Place, words = 'no statement'): Error {
  return createModelError('MODEL_SQL', place, {problem: `A model must be exactly one SELECT: ${words},`})
}
