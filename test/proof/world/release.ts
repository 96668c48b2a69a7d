import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {DuckDBInstance} from '@duckdb/node-api'
import {Finding} from './finding.ts'
import {dollars, type Row} from './tables.ts'

/** Fails at the first table of a release with wrong rows; only the named columns are compared. */
export async function requireTables(file: string, tables: Record<string, Row[]>): Promise<void> {
  if (!existsSync(file)) throw new Finding(`release: '${file}' is not there`)
  const instance = await DuckDBInstance.create(':memory:')
  const connection = await instance.connect()
  try {
    await connection.run(`attach '${file}' as release (read_only); use release`)
    for (const [table, expected] of Object.entries(tables)) {
      const names = Object.keys(expected[0] ?? {})
      const columns = names.length === 0 ? '*' : names.map((name) => `"${name}"`).join(', ')
      const result = await connection.runAndReadAll(`select ${columns} from ${table}`)
      const seen = result.getRowObjectsJson() as Row[]
      const difference = findDifference(expected, seen)
      if (difference !== null) throw new Finding(`${table}: ${difference}`)
    }
  } finally {
    connection.closeSync()
    instance.closeSync()
  }
}

/** The path of the current release's database. */
export function currentDatabase(root: string): string {
  return join(root, 'current', 'portfolio.duckdb')
}

/** How rows differ from the expected ones, in words; null if they are equal. */
function findDifference(expected: readonly Row[], seen: readonly Row[]): string | null {
  // Only shares are numbers in a query's result: equal to one close to it, they cannot order rows.
  const isExact = ([name]: [string, unknown]) => !seen.some((row) => typeof row[name] === 'number')
  const keyOf = (row: Row) => JSON.stringify(Object.entries(row).filter(isExact).map(toText).sort())
  const sort = (rows: readonly Row[]) => rows.toSorted((one, other) => (keyOf(one) < keyOf(other) ? -1 : 1))
  const [wanted, found] = [sort(expected), sort(seen)]
  for (let index = 0; index < Math.max(wanted.length, found.length); index += 1) {
    const [want, have] = [wanted[index], found[index]]
    if (want && have && Object.keys(want).every((name) => isSame(want[name], have[name]))) continue
    return `expected ${wanted.length} rows, ${showRow(want, have)}; seen ${found.length} rows, ${showRow(have, want)}`
  }
  return null
}

/** A value as the engine prints it. */
function toText([name, value]: [string, Row[string] | undefined]): [string, string | boolean | null] {
  if (typeof value === 'bigint') return [name, dollars(value)]
  return [name, typeof value === 'number' ? String(value) : (value ?? null)]
}

/** The difference, and the row's key. */
function showRow(row: Row | undefined, other: Row | undefined): string {
  if (row === undefined) return 'none there'
  const isShown = ([name, value]: [string, Row[string]], place: number) =>
    place < 2 || !other || !isSame(value, other[name])
  return JSON.stringify(Object.fromEntries(Object.entries(row).filter(isShown).map(toText)))
}

function isSame(one: Row[string] | undefined, other: Row[string] | undefined): boolean {
  if (typeof one === 'number' && typeof other === 'number')
    return Math.abs(one - other) <= 2e-6 * Math.max(1, Math.abs(one))
  return toText(['', one])[1] === toText(['', other])[1]
}
