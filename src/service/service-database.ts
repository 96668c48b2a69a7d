import {createSecretKey, type KeyObject, randomBytes} from 'node:crypto'
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import type {SQLInputValue} from 'node:sqlite'
import {z} from 'zod'
import type {ProblemCode} from '../contract/problem.ts'
import {realClock} from '../core/clock.ts'
import {newError} from '../core/errors.ts'
import {Sqlite} from '../core/sqlite.ts'
import {refuse} from './refusal.ts'

const TABLES = readFileSync(
  join(import.meta.dirname, '../../sql/migrations/service/0001_service.sql'),
  'utf8',
)

export class ServiceDatabase extends Sqlite {
  /** Signs cursors; stored with the data, so that they survive a restart. */
  readonly secret: KeyObject
  #onCommit: (() => void)[] = []

  constructor(path: string) {
    super(path)
    // full: acknowledged changes survive a power cut.
    this.db.exec('pragma journal_mode = wal; pragma synchronous = full; pragma cache_size = -65536')
    this.db.exec('pragma foreign_keys = on')
    // One transaction, so it waits for the disk only once.
    this.transaction(() => this.db.exec(TABLES))
    this.insert('cursor_secret', {only_row: 1, secret: randomBytes(32)}, 'or ignore')
    this.secret = createSecretKey(this.one(secretRow, 'select secret from cursor_secret').secret)
  }

  /** For very many deals: indexes and totals are made afterwards, which halves the time. */
  fill(work: () => void): void {
    this.transaction(() => {
      this.db.exec('drop trigger deal_counted; drop index deal_listed; drop index deal_by_status')
      work()
      this.db.exec('delete from deal_total')
      this.db.exec(TABLES)
    })
  }

  override transaction<T>(work: () => T): T {
    if (this.db.isTransaction) return work()
    this.#onCommit = []
    const result = super.transaction(work)
    for (const then of this.#onCommit) then()
    return result
  }

  create<T>({table, row}: Kind<T>, values: Record<string, SQLInputValue> & {id: string}): T {
    this.insert(table, values)
    return this.one(row, `select * from ${table} where id = ?`, [values.id])
  }

  /** @throws Refusal (404) */
  record<T>({table, row, missing = 'not_found'}: Kind<T>, values: Record<string, string>): T {
    const has = Object.keys(values).map((column) => `${column} = ?`)
    const found = this.first(row, `select * from ${table} where ${has.join(' and ')}`, Object.values(values))
    if (found === undefined) throw refuse(missing)
    return found
  }

  /** In list order. `filter` ignores undefined values; `before` holds the values of placeholders in `table`. */
  list<T>(
    {table, row}: Kind<T>,
    page: Page,
    filter: Filter = {},
    before: readonly SQLInputValue[] = [],
  ): T[] {
    const {sql, values} = selectPage(table, page, filter)
    return this.all(row, `select * ${sql}`, [...before, ...values])
  }

  /** A page of {@link list} as JSON. */
  page<T>(rows: Kind<T>, page: Page, filter: Filter = {}, before: readonly SQLInputValue[] = []): FoundPage {
    // One more record shows whether the list goes on.
    const asked = {...page, limit: page.limit + 1}
    const {records, count} = this.#joinPage(rows, asked, filter, before)
    if (count <= page.limit) return {records, next: null}
    const kept = records.slice(0, records.lastIndexOf(RECORD_START) - 1)
    const last = lastRecord.parse(JSON.parse(kept.slice(kept.lastIndexOf(RECORD_START))))
    return {records: kept, next: {createdAt: Date.parse(last.created_at), id: last.id}}
  }

  #joinPage<T>(rows: Kind<T>, page: Page, filter: Filter, before: readonly SQLInputValue[]) {
    if (rows.json === undefined) {
      const records = this.list(rows, page, filter, before)
      return {records: records.map((record) => JSON.stringify(record)).join(','), count: records.length}
    }
    const {sql, values} = selectPage(rows.table, page, filter)
    const joined = `select coalesce(group_concat(record), '') as records, count(*) as count
      from (select ${rows.json} as record ${sql})`
    return this.one(joinedRow, joined, [...before, ...values])
  }

  /** Runs `work` once the current transaction is committed, never after a rollback. */
  afterCommit(work: () => void): void {
    this.#onCommit.push(work)
  }
}

type Filter = Record<string, string | undefined>

function selectPage(table: string, {after, limit}: Page, filter: Filter) {
  const given = givenOf(filter)
  const has = Object.keys(given).map((column) => `${column} = ? and `)
  const rows = `from ${table} where ${has.join('')}(created_at, id) > (?, ?) order by created_at, id`
  // With the limit as a placeholder, SQLite would prepare the statement again for each page.
  return {sql: `${rows} limit ${limit}`, values: [...Object.values(given), after.createdAt, after.id]}
}

const secretRow = z.object({secret: z.instanceof(Uint8Array)})
const joinedRow = z.object({records: z.string(), count: z.number()})
/** Every record begins with its id, and no text within JSON contains these characters. */
const RECORD_START = '{"id":'
const lastRecord = z.object({id: z.string(), created_at: z.string()})

/** @throws ConfigError `SERVICE_DB_OPEN` */
export function openServiceDatabase(path: string): ServiceDatabase {
  try {
    return new ServiceDatabase(path)
  } catch (cause) {
    throw newError(
      'SERVICE_DB_OPEN',
      `The service cannot open its database '${path}': expected a new file in an existing folder, or a file it wrote itself.`,
      {cause},
    )
  }
}

let lastId = 0

/** The prefix, 13 digits that grow, so that what has one `created_at` is listed in the order of its creation, and 28 random bits. */
export function createId(prefix: string): string {
  lastId = Math.max(lastId + 1, realClock.now() * 1000)
  return `${prefix}_${lastId.toString(16).padStart(13, '0')}${randomBytes(4).toString('hex').slice(1)}`
}

/** Leaves out undefined values. */
export function givenOf(values: Record<string, SQLInputValue | undefined>): Record<string, SQLInputValue> {
  return Object.fromEntries(
    Object.entries(values).flatMap(([column, value]) => (value === undefined ? [] : [[column, value]])),
  )
}

/** As the API shows rows: columns `…_at` are ms since the epoch, `has_…` are 0 or 1. */
export function rowOf<T>(record: z.ZodType<T>): z.ZodType<T> {
  const show = (column: string, value: unknown) => {
    if (typeof value !== 'number') return value
    if (column.endsWith('_at')) return new Date(value).toISOString()
    return column.startsWith('has_') ? value === 1 : value
  }
  return z.preprocess((row) => {
    const columns = Object.entries(Object(row))
    return Object.fromEntries(columns.map(([column, value]) => [column, show(column, value)]))
  }, record)
}

/** Columns have the names of the record's fields. `missing` is the problem if there is no such record. */
export function kindOf<T>(table: string, record: z.ZodType<T>, missing?: ProblemCode): Kind<T> {
  return {table, row: rowOf(record), missing}
}

export interface Kind<T> {
  /** A table, a view or a query in parentheses. */
  table: string
  row: z.ZodType<T>
  /** A column that holds the record as JSON; lists made of it take half the time (`npm run bench service`). */
  json?: string
  missing?: ProblemCode | undefined
}

/**
 * At most `limit` records after a position. Every list is sorted by `createdAt` (ms since the epoch), then `id`. `at` is the
 * instant that all pages of a list show, for records that come and go with time.
 */
export interface Page {
  after: {createdAt: number; id: string; at?: number | undefined}
  limit: number
}

/** `records` are JSON, separated by commas; `next` is null at the end of the list. */
export interface FoundPage {
  records: string
  next: Page['after'] | null
}

/** The position before every record. */
export const FIRST: Page['after'] = {createdAt: Number.MIN_SAFE_INTEGER, id: ''}
