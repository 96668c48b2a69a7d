import {basename, join} from 'node:path'
import {z} from 'zod'
import {STREAMS} from '../contract/streams.ts'
import {type Fault, messageOf} from '../core/errors.ts'
import {listSome} from '../core/text.ts'
import type {DataFolder} from './data-folder.ts'
import {describeRow, fillIn, listFiles, readSqlFile, SQL_DIR, splitHeader} from './sql.ts'
import {listRawTables, openHistory} from './warehouse.ts'

const NEXT = 'Run `loantape rebuild`, which says how the warehouse differs from the tapes.'

/** Every table can be read, and no rule of `sql/checks/warehouse` finds rows. */
export async function verifyWarehouse(folder: DataFolder): Promise<{walks: number; faults: Fault[]}> {
  await using db = await openHistory(folder)
  await db.run('use history.raw')
  const tables = await listRawTables(db)
  const file = basename(folder.warehouse)
  // Reading every value of a table makes the engine verify the checksum of every block.
  const readings = tables.map((table) => ({
    problem: `Rows of table 'raw.${table}'`,
    sql: `select count(*) as records from ${table} as t having count(*) > 0 and bit_xor(hash(t)) is null`,
  }))
  const faults: Fault[] = []
  for (const {problem, sql} of [...readings, ...readRules()]) {
    const note = (words: string) => faults.push({problem: `${problem} in '${file}'${words}.`, next: NEXT})
    try {
      const rows = await db.all(z.record(z.string(), z.unknown()), sql)
      if (rows.length === 0) continue
      note(`: ${rows.length} wrong, ${listSome(rows.map(describeRow))}`)
    } catch (cause) {
      const words = (messageOf(cause).split('\n')[0] ?? '').replace(/\.$/, '')
      note(` cannot be examined: ${words}`)
    }
  }
  const walks = await db.value(z.coerce.number(), `select count(*) from walk where state = 'applied'`)
  return {walks, faults}
}

/**
 * Each is a SELECT of wrong rows, with an id first; its header is the problem. One that contains `{name}`, `{plural}` or `{id}`
 * is filled in for each stream.
 */
function readRules() {
  const texts = listFiles(join(SQL_DIR, 'checks/warehouse'), '.sql').map(readSqlFile)
  const filled = texts.flatMap((text) =>
    STREAMS.map(({name, plural, idColumn}) => fillIn(text, {name, plural, id: idColumn})),
  )
  return [...new Set(filled)].map((sql) => ({problem: splitHeader(sql).header.join(' ').slice(3), sql}))
}
