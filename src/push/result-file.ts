import {appendFileSync, existsSync, readFileSync, statSync, truncateSync} from 'node:fs'
import {parse} from 'csv-parse/sync'
import {stringify} from 'csv-stringify/sync'
import {z} from 'zod'
import {newError} from '../errors.ts'
import {shareWithFolder} from '../file-mode.ts'

/** What came of one row. */
export interface RowResult {
  line: number
  external_reference: string
  /** `created` and `known` rows have a deal; `invalid` ones were not sent, `refused` ones were. */
  outcome: 'created' | 'known' | 'invalid' | 'refused'
  deal_id: string
  message: string
}

const COLUMNS = ['line', 'external_reference', 'outcome', 'deal_id', 'message'] as const
const HEADER = `${COLUMNS.join(',')}\n`

const createdRow = z.object({external_reference: z.string(), outcome: z.string(), deal_id: z.string()})

/**
 * The deals that earlier pushes created, by external reference; half a line at the end is cut off.
 *
 * @throws ConfigError `PUSH_FILE` when the file is something else
 */
export function readCreated(path: string): Map<string, string> {
  if (!existsSync(path)) return new Map()
  const text = readFileSync(path, 'utf8')
  // As a spreadsheet may have saved it.
  const begins = text
    .slice(0, 2 * HEADER.length)
    .replace(/^\uFEFF/, '')
    .replaceAll('\r\n', '\n')
  if (!begins.startsWith(HEADER) && !HEADER.startsWith(begins)) {
    throw newError(
      'PUSH_FILE',
      `File '${path}' holds no results of a push: expected one that begins with ${COLUMNS.join(',')}.`,
      {next: 'Name another file with --result.'},
    )
  }
  // A push that was killed may have left half a line; the service still knows its Idempotency-Key.
  const whole = text.slice(0, text.lastIndexOf('\n') + 1)
  if (whole.length < text.length) truncateSync(path, Buffer.byteLength(whole))
  const rows = z.array(z.unknown()).parse(parse(whole, {bom: true, columns: true, relax_column_count: true}))
  const created = rows.flatMap((row) => {
    const parsed = createdRow.safeParse(row)
    const isWhole =
      parsed.success && parsed.data.outcome === 'created' && parsed.data.deal_id.startsWith('deal_')
    return isWhole ? [parsed.data] : []
  })
  return new Map(created.map((row) => [row.external_reference, row.deal_id]))
}

/** Adds the result of one row, durably; the file grows by each push and is never rewritten. */
export function appendResult(path: string, result: RowResult): void {
  const header = (statSync(path, {throwIfNoEntry: false})?.size ?? 0) === 0
  appendFileSync(path, stringify([result], {header, columns: [...COLUMNS]}), {
    flush: true,
  })
  if (header) shareWithFolder(path)
}
