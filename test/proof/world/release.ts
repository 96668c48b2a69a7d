import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {DuckDBInstance} from '@duckdb/node-api'
import {Finding} from './finding.ts'
import type {Row} from './tables.ts'

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
export function findDifference(expected: readonly Row[], seen: readonly Row[]): string | null {
  const [wanted, found] = [expected, seen].map((rows) => rows.toSorted(byText)) as [Row[], Row[]]
  for (let index = 0; index < Math.max(wanted.length, found.length); index += 1) {
    const [want, have] = [wanted[index], found[index]]
    if (want && have && Object.keys(want).every((name) => isSame(want[name], have[name]))) continue
    return `expected ${wanted.length} rows, ${showRow(want, have)}; seen ${found.length} rows, ${showRow(have, want)}`
  }
  return null
}

/** The difference, and the row's key. */
function showRow(row: Row | undefined, other: Row | undefined): string {
  if (row === undefined) return 'none there'
  const isShown = ([name, value]: [string, Row[string]], place: number) =>
    place < 2 || !other || !isSame(value, other[name])
  return JSON.stringify(Object.fromEntries(Object.entries(row).filter(isShown)))
}

function isSame(one: Row[string] | undefined, other: Row[string] | undefined): boolean {
  if (typeof one !== 'number' || typeof other !== 'number') return one === other
  return Math.abs(one - other) <= 2e-6 * Math.max(1, Math.abs(one))
}

/** Ordered by exact values: a share counts as equal to one close to it. */
function byText(one: Row, other: Row): number {
  const key = (row: Row) =>
    JSON.stringify(
      Object.entries(row)
        .filter(([, value]) => typeof value !== 'number')
        .sort(([a], [b]) => (a < b ? -1 : 1)),
    )
  return key(one) < key(other) ? -1 : 1
}
