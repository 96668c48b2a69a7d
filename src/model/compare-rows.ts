/** A row as text by column; null where the table has a null. */
export type TextRow = Record<string, string | null>

/** What sets the rows of a table apart from those that were expected. */
export interface RowDiff {
  missing: TextRow[]
  unexpected: TextRow[]
  /** Rows that were found with other values: their grain, and the columns that differ. */
  different: {row: TextRow; columns: Record<string, {expected: string | null; found: string | null}>}[]
  /** The first row that stands in another place, where all are there and their order counts; from 1. */
  misplaced: {place: number; expected: TextRow; found: TextRow} | null
}

/** How rows are compared. */
export interface Comparison {
  /** The columns that are looked at. */
  columns: readonly string[]
  /** The columns that tell rows apart; found rows have them all, expected ones may leave some out. */
  grain: readonly string[]
  /** Columns whose values are numbers: `100` is `100.00`. */
  numbers: ReadonlySet<string>
  /** Whether rows must stand in their order. */
  isOrdered: boolean
}

/**
 * Compares rows by those columns of the grain that are looked at. Rows that these do not tell apart are compared whole; what is then left
 * over on both sides in equal number is compared in turn.
 */
export function compareRows(
  expected: readonly TextRow[],
  found: readonly TextRow[],
  {columns, grain, numbers, isOrdered}: Comparison,
): RowDiff {
  const textOf = (row: TextRow, named: readonly string[]) =>
    JSON.stringify(named.map((column) => (numbers.has(column) ? plainNumber(row[column]) : row[column])))
  const isUnique = (rows: readonly TextRow[], named: readonly string[]) =>
    new Set(rows.map((row) => textOf(row, named))).size === rows.length
  const key = grain.filter((column) => columns.includes(column))
  const isKeyed = key.length > 0 && isUnique(expected, key) && isUnique(found, key)
  const rest = Map.groupBy(found, (row) => textOf(row, isKeyed ? key : columns))
  const pairs = expected.map((row) => [row, rest.get(textOf(row, isKeyed ? key : columns))?.shift()] as const)
  const missing = pairs.flatMap(([row, other]) => (other ? [] : [row]))
  const unexpected = [...rest.values()].flat()
  const isPaired = !isKeyed && missing.length === unexpected.length
  if (isPaired) pairs.push(...missing.map((row, index) => [row, unexpected[index]] as const))
  const different = pairs.flatMap(([row, other]) => {
    const wrong = columns.filter((column) => other && textOf(row, [column]) !== textOf(other, [column]))
    if (!other || wrong.length === 0) return []
    const values = wrong.map((column) => [
      column,
      {expected: row[column] ?? null, found: other[column] ?? null},
    ])
    return [{row: pick(other, grain), columns: Object.fromEntries(values)}]
  })
  const diff = {missing: isPaired ? [] : missing, unexpected: isPaired ? [] : unexpected, different}
  const isSame = Object.values(diff).every(({length}) => length === 0)
  const place = expected.findIndex(
    (row, index) => textOf(row, columns) !== textOf(found[index] ?? {}, columns),
  )
  const [wanted, there] = [expected[place], found[place]]
  const isMisplaced = isOrdered && isSame && wanted && there
  return {...diff, misplaced: isMisplaced ? {place: place + 1, expected: wanted, found: there} : null}
}

/** Whether nothing sets the rows apart. */
export function isSameRows({missing, unexpected, different, misplaced}: RowDiff): boolean {
  return missing.length + unexpected.length + different.length === 0 && misplaced === null
}

function pick(row: TextRow, columns: readonly string[]): TextRow {
  return Object.fromEntries(columns.map((column) => [column, row[column] ?? null]))
}

/** A decimal number without the zeros that do not count; other text, `nan` and `1e9` among it, as it is. */
function plainNumber(text: string | null | undefined): string | null {
  const [, sign = '', whole = '', decimals = ''] = /^([+-]?)0*(\d+)(?:\.(\d*?)0*)?$/.exec(text ?? '') ?? []
  if (whole === '') return text ?? null
  const digits = decimals === '' ? whole : `${whole}.${decimals}`
  return sign === '-' && /[1-9]/.test(digits) ? `-${digits}` : digits
}
