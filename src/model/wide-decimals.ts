import {type Database, quoteName} from '../warehouse/database.ts'
import {readColumns} from '../warehouse/table-columns.ts'

/** Digits from which the engine multiplies a decimal by an amount without overflow: up to 18 both are whole 64-bit numbers. */
const WIDE = 19

/** Names of ratios, percentages and rates, which no amount bears. */
const RATIO_NAME = /(^|_)(pct|ltv|ratio|rate)$/

/**
 * The type a column has once published: a ratio, percentage or rate is wide enough for `loan_amount * ltv`. DECIMAL(18,2) is
 * money and stays, unless its name says that it is none.
 */
export function widenDecimal(name: string, type: string): string {
  const [, width, scale] = /^DECIMAL\((\d+),(\d+)\)$/i.exec(type) ?? []
  if (width === undefined || Number(width) >= WIDE) return type
  const isMoney = width === '18' && scale === '2' && !RATIO_NAME.test(name)
  return isMoney ? type : `DECIMAL(${WIDE},${scale})`
}

/** Widens the columns of a table that was just made. */
export async function widenDecimals(db: Database, table: string): Promise<void> {
  for (const {name, type} of await readColumns(db, table)) {
    const wide = widenDecimal(name, type)
    if (wide !== type) await db.run(`alter table ${table} alter column ${quoteName(name)} type ${wide}`)
  }
}
