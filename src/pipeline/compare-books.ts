import {gunzipSync} from 'node:zlib'
import {z} from 'zod'
import type {Config} from '../config.ts'
import {openStateDb, type StateDb} from '../state/state-db.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import {actSchema, applyAct} from './acts.ts'
import {findReadKey} from './tape-key.ts'
import {listReadableTapes, textOf} from './tape-units.ts'

/** The tables of the state database that acts alone fill, each with the columns that say what was done. */
const BOOKS = {
  journal_batch: 'profile, batch_id, period, known_at, issued_at, history_id',
  journal_file: 'batch_no, name, content',
  issued_line: '*',
  closed_period: '*',
  remapped_period: '*',
  period_event: 'period, action, at, who, why',
}

/**
 * Computes the books anew from the acts on the tapes and compares them with those of the state database; none where a tape of an act
 * cannot be read.
 *
 * @returns the tables that are not the same
 */
export function compareBooks(config: Config): string[] {
  const folder = dataFolderAt(config.dataDir)
  using stateDb = openStateDb(folder.stateDb)
  using anew = openStateDb(':memory:')
  const tapes = listReadableTapes(folder, stateDb, findReadKey(config, folder))
  const acts = tapes
    .filter(({unit}) => unit.startsWith('act_'))
    .flatMap((tape) => [...tape.lines()].filter(({frame}) => frame.frame === 'act').map(textOf))
  for (const act of acts) applyAct(anew, actSchema.parse(JSON.parse(act)))
  return Object.entries(BOOKS)
    .filter(([table, columns]) => readBooks(stateDb, table, columns) !== readBooks(anew, table, columns))
    .map(([table]) => table)
}

function readBooks(stateDb: StateDb, table: string, columns: string): string {
  const rows = stateDb.all(
    z.record(z.string(), z.unknown()),
    `select ${columns} from ${table} order by rowid`,
  )
  return JSON.stringify(rows, (_, value) =>
    value instanceof Uint8Array ? gunzipSync(value).toString() : value,
  )
}
