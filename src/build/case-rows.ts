import {z} from 'zod'
import {type Database, quoteLiteral, quoteName} from '../store/database.ts'

type Value = string | number | boolean | null | undefined

/** One row of a raw table. */
export type Row = Record<string, Value>

/** A row of `raw.deal_version` on a business day; optional fields are present exactly when they are given. */
export function aVersion({day = '2026-03-02', ...row}: Row & {day?: string} = {}): Row {
  return {
    deal_id: 'deal_1',
    kind: 'seen',
    source: 'list',
    walk_id: `walk ${day}`,
    observed_at: `${day} 02:05:00`,
    business_date: day,
    recorded_at: `${day} 02:30:00`,
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

/** A row of `raw.walk`: the certificate of an applied, complete walk on a business day. */
export function aWalk({day = '2026-03-02', ...row}: Row & {day?: string} = {}): Row {
  return {
    walk_id: `walk ${day}`,
    stream: 'deal',
    state: 'applied',
    business_date: day,
    started_at: `${day} 02:00:00`,
    ended_at: `${day} 02:10:00`,
    is_complete: true,
    pages: 1,
    ended_how: 'complete',
    recorded_at: `${day} 02:30:00`,
    ...row,
  }
}

/** A row of `raw.quarantine` on a business day. */
export function aQuarantine({day = '2026-03-02', ...row}: Row & {day?: string} = {}): Row {
  return {
    quarantine_id: `q ${day}`,
    stream: 'deal',
    walk_id: `walk ${day}`,
    source: 'list',
    record_id: 'deal_1',
    path: 'loan_amount',
    reason: 'expected a number',
    place: '1/0',
    observed_at: `${day} 02:05:00`,
    business_date: day,
    recorded_at: `${day} 02:30:00`,
    ...row,
  }
}

/** A row of `raw.borrower_version` on a business day; `link_id` is `<deal_id>/<borrower_id>`. */
export function aBorrower({day = '2026-03-02', ...row}: Row & {day?: string} = {}): Row {
  const {deal_id = 'deal_1', borrower_id = 'bor_1'} = row
  return {...childOf(day, row), link_id: `${deal_id}/${borrower_id}`, deal_id, borrower_id}
}

/** A row of `raw.document_version` on a business day. */
export function aDocument({day = '2026-03-02', ...row}: Row & {day?: string} = {}): Row {
  const {deal_id = 'deal_1', document_id = 'doc_1'} = row
  return {
    category: 'appraisal',
    ...childOf(day, row),
    attachment_id: `${deal_id}/${document_id}`,
    deal_id,
    document_id,
  }
}

function childOf(day: string, row: Row): Row {
  return {
    kind: 'seen',
    source: 'list',
    walk_id: `walk ${day}`,
    observed_at: `${day} 02:05:00`,
    business_date: day,
    recorded_at: `${day} 02:40:00`,
    created_at: '2026-02-11 12:00:00',
    created_at_precision: 'instant',
    ...row,
  }
}

/** A row of `raw.listing`: a list that the walk of a business day read to its end. */
export function aListing({day = '2026-03-02', ...row}: Row & {day?: string} = {}): Row {
  return {
    walk_id: `walk ${day}`,
    stream: 'document',
    parent_id: 'deal_1',
    outcome: 'listed',
    observed_at: `${day} 02:05:00`,
    ...row,
  }
}

/** A row of `raw.rate`, read on a business day. */
export function aRate({day = '2026-03-02', ...row}: Row & {day?: string} = {}): Row {
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

/** A row of `raw.drift`: what the walk of a business day found. */
export function aDrift({day = '2026-03-02', ...row}: Row & {day?: string} = {}): Row {
  return {
    walk_id: `walk ${day}`,
    stream: 'deal',
    kind: 'new_field',
    path: 'borrower.name',
    records: 1,
    ...row,
  }
}

/** The raw rows of a history, in the order they were stored. */
export interface History {
  versions?: Row[]
  confirmations?: Row[]
  walks?: Row[]
  quarantine?: Row[]
  drift?: Row[]
  borrowers?: Row[]
  documents?: Row[]
  listings?: Row[]
  rates?: Row[]
}

/** Inserts a history into the database attached as `history`. */
export async function insertHistory(db: Database, history: History): Promise<void> {
  await insertRows(db, 'deal_version', history.versions)
  await insertRows(db, 'deal_confirmation', history.confirmations)
  await insertRows(db, 'borrower_version', history.borrowers)
  await insertRows(db, 'document_version', history.documents)
  await insertRows(db, 'rate', history.rates)
  await insertRows(db, 'listing', history.listings)
  await insertRows(db, 'walk', history.walks)
  await insertRows(db, 'quarantine', history.quarantine)
  await insertRows(db, 'drift', history.drift)
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
