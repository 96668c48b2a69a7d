import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import type {Database} from '../warehouse/database.ts'

/** Rows of a table that are sorted, grouped or joined at once: few enough for the memory of a load. */
const PART_ROWS = 500_000

/**
 * Runs `work` once for each part of the records, so that what a statement sorts, groups or joins does not grow with
 * their number. Its statements say with {@link isInPart} which rows they read; all rows of a record are in one part.
 *
 * @param tables the largest of them counts; few rows are one part. The SQL variable `part_rows` sets another size.
 */
export async function inParts(
  db: Database,
  tables: readonly string[],
  work: () => Promise<void>,
): Promise<void> {
  const counts = tables.map((table) => `(select count(*) from ${table})`)
  const {parts} = await db.one(
    z.object({parts: z.coerce.number()}),
    `select ceil(greatest(${counts.join(', ')}) / coalesce(getvariable('part_rows'), ${PART_ROWS})) as parts`,
  )
  for (let part = 0; parts > 1 && part < parts; part++) {
    await db.run(`set variable parts = ${parts}::ubigint; set variable part = ${part}::ubigint`)
    await work()
  }
  // Not in a `finally`: a transaction that has failed takes no statement. The next call sets them anew.
  await db.run('reset variable parts; reset variable part')
  if (parts <= 1) await work()
}

/** SQL condition: the record of this id is in the part under way. Outside of {@link inParts} every record is. */
export function isInPart(id: string): string {
  // The engine places a row in its own hash tables by the lowest and the highest bits.
  return `coalesce((hash(${id}) >> 24) % getvariable('parts') = getvariable('part'), true)`
}

/** SQL of the rows of a table that are in the part under way. */
export function partOf(table: string, {idColumn}: Stream): string {
  return `(from ${table} where ${isInPart(idColumn)})`
}

/** Makes an empty temporary table of the form of a query, in place of the one before. */
export function createTempTable(db: Database, name: string, query: string): Promise<void> {
  return db.run(`create or replace temp table ${name} as ${query} limit 0`)
}
