import {z} from 'zod'
import {parseJson} from '../core/json.ts'
import {type Database, requireOneStatement, requireText} from '../store/database.ts'
import {findNodes} from '../store/sql.ts'
import names from './question-names.json' with {type: 'json'}

/** Functions allowed in FROM: they compute rows or describe the catalogue, and name no files. */
const TABLE_FUNCTIONS = new Set(names.table_functions)

/** Functions that reveal the machine, write, or plan another statement. */
const REFUSED_FUNCTIONS = new Set(names.refused_functions)

/** Catalogue views that name files or reveal settings. */
const REFUSED_VIEWS = new Set(names.refused_views)

const serialised = z.object({
  error_type: z.string().optional(),
  statements: z.array(z.unknown()).optional(),
})

/**
 * A question is one SELECT, DESCRIBE, SHOW or SUMMARIZE that reads nothing but tables. Returns the tables it names (`core.deal`),
 * including its CTEs; `isShown` for DESCRIBE, SHOW and SUMMARIZE.
 * @throws Error in words for the person
 */
export async function parseQuestion(
  db: Database,
  sql: string,
): Promise<{tables: string[]; isShown: boolean}> {
  requireText(sql)
  const tree = await db.value(z.string(), 'select json_serialize_sql($1::varchar)::varchar', [sql])
  const parsed = parseJson(tree)
  if (parsed === undefined) throw new Error('a number in it is too large: expected one below 1e308.')
  const {error_type, statements = []} = serialised.parse(parsed)
  // The engine's own error marks the place in the text.
  if (error_type === 'parser') await requireOneStatement(db.connection, sql)
  if (error_type !== undefined) throw new Error(wordRefusal(sql))
  if (statements.length !== 1) throw new Error(`${statements.length} statements: expected one SELECT.`)
  const tables: string[] = []
  let isShown = false
  for (const {type, function_name, table_name = '', schema_name, function: called} of findNodes(statements)) {
    if (type === 'TABLE_FUNCTION' && !TABLE_FUNCTIONS.has(called?.function_name.toLowerCase() ?? ''))
      throw new Error(
        `function '${called?.function_name}' in FROM: expected a table, or a function such as range, unnest, json_each or duckdb_columns.`,
      )
    if (function_name !== undefined && REFUSED_FUNCTIONS.has(function_name.toLowerCase()))
      throw new Error(`function '${function_name}' is not for questions.`)
    if (type === 'SHOW_REF') isShown = true
    if (type !== 'BASE_TABLE') continue
    if (/[./\\]/.test(table_name))
      throw new Error(`file '${table_name}': expected a table of the release; files are not read.`)
    if (REFUSED_VIEWS.has(table_name.toLowerCase()))
      throw new Error(`table '${table_name}' is not for questions: duckdb_tables and duckdb_columns are.`)
    tables.push([schema_name, table_name].filter(Boolean).join('.'))
  }
  return {tables, isShown}
}

const wordRefusal = (sql: string) =>
  `expected one SELECT; DESCRIBE, SHOW and SUMMARIZE are answered, too.${
    /\bpivot\b/i.test(sql)
      ? " PIVOT needs its values: `pivot core.deal on status in ('funded', 'closing') using sum(loan_amount)`."
      : ''
  }`
