import {randomBytes} from 'node:crypto'
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import type {SQLInputValue} from 'node:sqlite'
import {z} from 'zod'
import {newError} from '../core/errors.ts'
import {Sqlite} from '../core/sqlite.ts'

const TABLES = join(import.meta.dirname, '../../sql/migrations/service/0001_service.sql')

/** The service's SQLite database. */
export class ServiceDatabase extends Sqlite {
  /** The file, or `:memory:`. */
  readonly path: string
  /** Signs cursors and digests of requests; stored with the data, so that both survive a restart. */
  readonly secret: Buffer
  #onCommit: (() => void)[] = []

  constructor(path: string) {
    super(path)
    this.path = path
    // full: what was acknowledged survives a power cut.
    this.db.exec('pragma journal_mode = wal; pragma synchronous = full; pragma cache_size = -65536')
    this.db.exec('pragma foreign_keys = on')
    // One transaction, so it waits for the disk only once.
    this.transaction(() => this.db.exec(readFileSync(TABLES, 'utf8')))
    this.insert('cursor_secret', {only_row: 1, secret: randomBytes(32)}, 'or ignore')
    this.secret = Buffer.from(this.one(secretRow, 'select secret from cursor_secret').secret)
  }

  override transaction<T>(work: () => T): T {
    if (this.db.isTransaction) return work()
    this.#onCommit = []
    const result = super.transaction(work)
    for (const then of this.#onCommit) then()
    return result
  }

  /** Inserts one row and returns it as it is stored. */
  create<T>(schema: z.ZodType<T>, table: string, row: Record<string, SQLInputValue> & {id: string}): T {
    this.insert(table, row)
    return this.one(schema, `select * from ${table} where id = ?`, [row.id])
  }

  /** Runs `work` once the current transaction is committed, never after a rollback. */
  afterCommit(work: () => void): void {
    if (this.db.isTransaction) this.#onCommit.push(work)
    else work()
  }
}

const secretRow = z.object({secret: z.instanceof(Uint8Array)})

/**
 * Opens the service's database in a file, or in memory with `:memory:`.
 *
 * @throws ConfigError if the file cannot be opened as the service's database
 */
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

/** An id of the service: `deal_` and 80 random bits. */
export function createId(prefix: string): string {
  return `${prefix}_${randomBytes(10).toString('hex')}`
}

/** A column of ms since the epoch as ISO 8601. */
export const rowInstant = z.number().transform((ms) => new Date(ms).toISOString())

/** The sort key of every list: `createdAt` (ms since the epoch), then `id`, ascending. */
export interface ListKey {
  createdAt: number
  id: string
}

/** Before every record. */
export const FIRST: ListKey = {createdAt: Number.MIN_SAFE_INTEGER, id: ''}
