import {basename} from 'node:path'
import {z} from 'zod'
import {type Failure, messageOf} from '../errors.ts'
import {type Database, openDatabase, quoteName} from './database.ts'

/** What reading a database from end to end came to. */
export interface DeepRead {
  tables: number
  columns: number
  /** One for each table that cannot be read whole, or one for the file. */
  faults: Failure[]
}

const tableRow = z.object({schema_name: z.string(), table_name: z.string(), columns: z.string()})

/**
 * Reads every value of every column of a database file, so that each block's checksum is verified: opening a file
 * reads hardly any.
 *
 * @param next what to do about a damaged one
 */
export async function readEveryColumn(path: string, next: string): Promise<DeepRead> {
  let tables: {name: string; columns: string[]}[]
  let db: Database | undefined
  try {
    db = await openReadOnly(path)
    tables = await listTables(db)
  } catch (error) {
    await db?.[Symbol.asyncDispose]()
    const problem = `File '${path}' does not open: ${firstLineOf(error)}.`
    return {tables: 0, columns: 0, faults: [{code: 'DEEP_UNREADABLE', problem, next, cause: error}]}
  }
  const faults: Failure[] = []
  try {
    for (const {name, columns} of tables) {
      const damaged: {column: string; cause: unknown}[] = []
      for (const column of columns) {
        try {
          await db.run(`select bit_xor(hash(${quoteName(column)})) from examined.${name}`)
        } catch (cause) {
          damaged.push({column, cause})
          // A damaged block may shut the engine for good; a new one reads on.
          await db[Symbol.asyncDispose]()
          db = await openReadOnly(path)
        }
      }
      const [first] = damaged
      if (!first) continue
      const names = damaged.map(({column}) => column).join(', ')
      const problem = `Table '${name}' of '${basename(path)}' cannot be read (${names}): ${firstLineOf(first.cause)}.`
      faults.push({code: 'DEEP_DAMAGED', problem, next, cause: first.cause})
    }
  } finally {
    await db[Symbol.asyncDispose]()
  }
  return {tables: tables.length, columns: tables.flatMap(({columns}) => columns).length, faults}
}

async function listTables(db: Database): Promise<{name: string; columns: string[]}[]> {
  const rows = await db.all(
    tableRow,
    `select schema_name, table_name, to_json(list(column_name order by column_index)) as columns
     from duckdb_columns()
     where database_name = 'examined' and table_oid in (
       select table_oid from duckdb_tables() where database_name = 'examined'
     )
     group by schema_name, table_name
     order by schema_name, table_name`,
  )
  return rows.map(({schema_name, table_name, columns}) => ({
    name: `${schema_name}.${table_name}`,
    columns: z.array(z.string()).parse(JSON.parse(columns)),
  }))
}

function openReadOnly(path: string): Promise<Database> {
  return openDatabase({attach: [{path, alias: 'examined', readOnly: true}]})
}

function firstLineOf(error: unknown): string {
  return (messageOf(error).split('\n')[0] ?? '').replace(/\.$/, '')
}

/** A rule as SQL that returns the rows that break it, the first column naming each. */
export interface Rule {
  /** Table 'raw.walk': a walk that …, to which the rows are added. */
  problem: string
  sql: string
}

/** How many rows a finding names. */
const NAMED = 3

/** Tries each rule; a rule that cannot be tried is a fault, too. */
export async function tryRules(
  db: Database,
  rules: readonly Rule[],
  {file, next}: {file: string; next: string},
): Promise<Failure[]> {
  const faults: Failure[] = []
  for (const {problem, sql} of rules) {
    try {
      const rows = await db.all(z.record(z.string(), z.unknown()), sql)
      if (rows.length === 0) continue
      const named = rows.slice(0, NAMED).map(describeRow)
      if (rows.length > NAMED) named.push('…')
      faults.push({
        code: 'DEEP_INVARIANT',
        problem: `${problem} in '${file}': ${rows.length} wrong, ${named.join(', ')}.`,
        next,
      })
    } catch (error) {
      faults.push({
        code: 'DEEP_INVARIANT',
        problem: `${problem} in '${file}' cannot be examined: ${firstLineOf(error)}.`,
        next,
        cause: error,
      })
    }
  }
  return faults
}

/** `deal_7 (versions=2, last=3)` */
function describeRow(row: Record<string, unknown>): string {
  const [first, ...rest] = Object.entries(row)
  const others = rest.map(([name, value]) => `${name}=${value}`)
  return `${first?.[1]}${others.length > 0 ? ` (${others.join(', ')})` : ''}`
}
