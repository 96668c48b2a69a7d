import {z} from 'zod'
import {type Database, quoteLiteral, quoteName} from '../store/database.ts'

type Value = string | number | boolean | null | undefined

/** One row of a raw table. */
export type Row = Record<string, Value>

/** A row to be, and the business day on which it was observed. */
type Draft = Row & {day?: string}

/** When and where the walk of a business day observed something. */
const observedOn = (day: string, stored = '02:30:00') => ({
  walk_id: `walk ${day}`,
  observed_at: `${day} 02:05:00`,
  business_date: day,
  recorded_at: `${day} ${stored}`,
})

/** A row of `raw.deal_version`; optional fields are present exactly when they are given. */
export function aVersion({day = '2026-03-02', ...row}: Draft = {}): Row {
  return {
    ...observedOn(day),
    deal_id: 'deal_1',
    kind: 'seen',
    source: 'list',
    property_address: '12 Main St, Austin, TX 78701',
    loan_amount: '100000.00',
    property_value_present: 'property_value' in row,
    loan_program_present: 'loan_program' in row,
    status: 'draft',
    created_at: '2026-02-10 12:00:00',
    created_at_precision: 'instant',
    ...row,
  }
}

/** A row of `raw.walk`: the certificate of an applied, complete walk. */
export function aWalk({day = '2026-03-02', ...row}: Draft = {}): Row {
  const {walk_id, business_date, recorded_at} = observedOn(day)
  return {
    walk_id,
    business_date,
    recorded_at,
    stream: 'deal',
    state: 'applied',
    started_at: `${day} 02:00:00`,
    ended_at: `${day} 02:10:00`,
    is_complete: true,
    pages: 1,
    ended_how: 'complete',
    ...row,
  }
}

/** A row of `raw.quarantine`. */
export function aQuarantine({day = '2026-03-02', ...row}: Draft = {}): Row {
  return {
    ...observedOn(day),
    quarantine_id: `q ${day}`,
    stream: 'deal',
    source: 'list',
    record_id: 'deal_1',
    path: 'loan_amount',
    reason: 'expected a number',
    place: '1/0',
    ...row,
  }
}

/** A row of `raw.borrower_version`; `link_id` is `<deal_id>/<borrower_id>`. */
export function aBorrower(row: Draft = {}): Row {
  const {deal_id = 'deal_1', borrower_id = 'bor_1'} = row
  return {...aChild(row), link_id: `${deal_id}/${borrower_id}`, deal_id, borrower_id}
}

/** A row of `raw.document_version`. */
export function aDocument(row: Draft = {}): Row {
  const {deal_id = 'deal_1', document_id = 'doc_1'} = row
  const attachment_id = `${deal_id}/${document_id}`
  return {category: 'appraisal', ...aChild(row), attachment_id, deal_id, document_id}
}

function aChild({day = '2026-03-02', ...row}: Draft): Row {
  return {
    ...observedOn(day, '02:40:00'),
    kind: 'seen',
    source: 'list',
    created_at: '2026-02-11 12:00:00',
    created_at_precision: 'instant',
    ...row,
  }
}

/** A row of `raw.listing`: a list that a walk read to its end. */
export function aListing({day = '2026-03-02', ...row}: Draft = {}): Row {
  const {walk_id, observed_at} = observedOn(day)
  return {walk_id, observed_at, stream: 'document', parent_id: 'deal_1', outcome: 'listed', ...row}
}

/** A row of `raw.rate`. */
export function aRate({day = '2026-03-02', ...row}: Draft = {}): Row {
  return {
    feed: 'fed',
    rate: 'SOFR',
    rate_date: day,
    value: '4.31',
    observed_at: `${day} 22:00:00`,
    business_date: day,
    recorded_at: `${day} 22:01:00`,
    ...row,
  }
}

/** A row of `raw.drift`: what a walk found. */
export function aDrift({day = '2026-03-02', ...row}: Draft = {}): Row {
  return {
    walk_id: `walk ${day}`,
    stream: 'deal',
    kind: 'new_field',
    path: 'borrower.name',
    records: 1,
    ...row,
  }
}

/** Tables of the schema `raw`. */
type RawTable =
  | 'deal_version'
  | 'deal_confirmation'
  | 'borrower_version'
  | 'document_version'
  | 'listing'
  | 'rate'
  | 'walk'
  | 'quarantine'
  | 'drift'

/** The rows of a history by table, in the order they were stored. */
export type History = {[T in RawTable]?: Row[]}

/** Inserts a history into the database attached as `history`. */
export async function insertHistory(db: Database, history: History): Promise<void> {
  for (const [table, rows] of Object.entries(history)) await insertRows(db, table, rows)
}

/**
 * Inserts rows into a raw table of the database attached as `history`. A column that a row leaves out is null if it may be, else
 * 0, false or an empty text; `seq` is the row's position. Counts and flags of a walk are never null.
 */
export async function insertRows(db: Database, table: string, rows: readonly Row[] = []): Promise<void> {
  if (rows.length === 0) return
  const needed = await db.all(
    z.object({name: z.string(), type: z.string()}),
    `select column_name as name, data_type as type from duckdb_columns()
     where database_name = 'history' and schema_name = 'raw' and table_name = $1
       and (not is_nullable or (table_name = 'walk' and data_type not in ('VARCHAR', 'TIMESTAMP')))`,
    [table],
  )
  const fill = (place: number) =>
    needed.map(({name, type}) => {
      if (name === 'seq') return [name, place]
      return [name, type === 'VARCHAR' ? '' : type !== 'BOOLEAN' && 0]
    })
  const filled = rows.map((row, index): Row => ({...Object.fromEntries(fill(index + 1)), ...row}))
  const columns = [...new Set(filled.flatMap((row) => Object.keys(row)))]
  const values = filled.map((row) => `(${columns.map((column) => literal(row[column])).join(', ')})`)
  await db.run(
    `insert into history.raw.${table} (${columns.map(quoteName).join(', ')}) values ${values.join(', ')}`,
  )
}

function literal(value: Value = null): string {
  return typeof value === 'string' ? quoteLiteral(value) : String(value)
}
