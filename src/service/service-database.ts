import {randomBytes} from 'node:crypto'
import {DatabaseSync, type SQLInputValue, type StatementSync} from 'node:sqlite'
import {z} from 'zod'
import {newError} from '../core/errors.ts'

/** The tables of the service; every list is ordered by `created_at` (ms since the epoch) and `id`. */
const SCHEMA = `
create table if not exists deal (
  id text primary key,
  property_address text not null,
  loan_amount_cents integer not null,
  property_value_cents integer,
  loan_program text,
  status text not null,
  created_at integer not null
) strict;
create index if not exists deal_by_created on deal (created_at, id);
create index if not exists deal_by_status on deal (status, created_at, id);

create table if not exists borrower (
  id text primary key,
  deal_id text not null references deal (id) on delete cascade,
  first_name text not null,
  last_name text not null,
  email text not null,
  has_ssn_last_four integer not null,
  created_at integer not null
) strict;
create index if not exists borrower_by_deal on borrower (deal_id, created_at, id);

create table if not exists document (
  id text primary key,
  deal_id text not null references deal (id) on delete cascade,
  category text not null,
  name text not null,
  file_name text,
  media_type text not null,
  bytes integer not null,
  sha256 text not null,
  created_at integer not null
) strict;
create index if not exists document_by_deal on document (deal_id, created_at, id);

-- The files of synthetic documents: hundreds of thousands of small ones.
create table if not exists made_up_file (
  document_id text primary key references document (id) on delete cascade,
  content text not null
) strict, without rowid;

create table if not exists document_generation (
  id text primary key,
  deal_id text not null references deal (id) on delete cascade,
  template text not null,
  status text not null,
  document_id text,
  created_at integer not null,
  finished_at integer
) strict;
create index if not exists document_generation_by_deal on document_generation (deal_id, created_at, id);
create index if not exists document_generation_queued on document_generation (created_at, id) where status = 'queued';

create table if not exists task (
  id text primary key,
  deal_id text not null references deal (id) on delete cascade,
  title text not null,
  due_on text,
  status text not null,
  created_at integer not null,
  completed_at integer
) strict;
create index if not exists task_by_deal on task (deal_id, created_at, id);

create table if not exists rate (
  id text primary key,
  provider text not null,
  loan_program text not null,
  rate_pct_e4 integer not null,
  effective_at integer not null,
  created_at integer not null
) strict;
create index if not exists rate_by_created on rate (created_at, id);
create index if not exists rate_in_force on rate (provider, loan_program, effective_at, created_at, id);

create table if not exists webhook_endpoint (
  id text primary key,
  url text not null,
  events text not null,
  description text,
  status text not null,
  disabled_reason text,
  secret text not null,
  created_at integer not null
) strict;
create index if not exists webhook_endpoint_by_created on webhook_endpoint (created_at, id);

create table if not exists event (
  id text primary key,
  type text not null,
  payload text not null,
  created_at integer not null
) strict;

create table if not exists webhook_delivery (
  id text primary key,
  endpoint_id text not null references webhook_endpoint (id) on delete cascade,
  event_id text not null references event (id),
  status text not null,
  attempts integer not null,
  next_attempt_at integer,
  last_status integer,
  last_error text,
  created_at integer not null
) strict;
create index if not exists webhook_delivery_by_endpoint on webhook_delivery (endpoint_id, created_at, id);
create index if not exists webhook_delivery_due on webhook_delivery (next_attempt_at) where status = 'pending';

create table if not exists api_key (
  id text primary key,
  name text not null,
  prefix text not null,
  digest blob not null,
  scopes text not null,
  created_at integer not null,
  revoked_at integer
) strict;

create table if not exists idempotent_answer (
  owner text not null,
  key text not null,
  fingerprint text not null,
  status integer not null,
  headers text not null,
  body text not null,
  created_at integer not null,
  primary key (owner, key)
) strict;
create index if not exists idempotent_answer_by_created on idempotent_answer (created_at);

create table if not exists cursor_secret (
  only_row integer primary key check (only_row = 1),
  secret blob not null
) strict;
`

/** The service's SQLite database. */
export type ServiceDatabase = ReturnType<typeof openServiceDatabase>

/** An id of the service: `deal_` and 80 random bits. */
export function createId(prefix: string): string {
  return `${prefix}_${randomBytes(10).toString('hex')}`
}

/** A column of ms since the epoch as ISO 8601. */
export const rowInstant = z.number().transform((ms) => new Date(ms).toISOString())

function openFile(path: string): DatabaseSync {
  try {
    const database = new DatabaseSync(path, {timeout: 5_000})
    // full: what was acknowledged survives a power cut.
    database.exec('pragma journal_mode = wal; pragma synchronous = full; pragma cache_size = -65536')
    database.exec('pragma foreign_keys = on')
    // One transaction, so it waits for the disk only once.
    database.exec(`begin immediate; ${SCHEMA}; commit`)
    return database
  } catch (cause) {
    throw newError(
      'SERVICE_DB_OPEN',
      `The service cannot open its database '${path}': expected a new file in an existing folder, or a file it wrote itself.`,
      {cause},
    )
  }
}

function readSecret(database: DatabaseSync): Buffer {
  database
    .prepare('insert into cursor_secret (only_row, secret) values (1, ?) on conflict do nothing')
    .run(randomBytes(32))
  const secret = database.prepare('select secret from cursor_secret').get()?.secret
  return secret instanceof Uint8Array ? Buffer.from(secret) : Buffer.alloc(0)
}

/**
 * Opens the service's database in a file, or in memory with `:memory:`.
 *
 * @throws ConfigError if the file cannot be opened as the service's database
 */
export function openServiceDatabase(path: string) {
  const database = openFile(path)
  const statements = new Map<string, StatementSync>()
  let onCommit: (() => void)[] = []

  function prepare(sql: string): StatementSync {
    const known = statements.get(sql)
    if (known) return known
    const statement = database.prepare(sql)
    statements.set(sql, statement)
    return statement
  }

  /** Runs `work` in a transaction, the current one if there is one; rolls back and rethrows errors. */
  function transaction<T>(work: () => T): T {
    if (database.isTransaction) return work()
    database.exec('begin immediate')
    onCommit = []
    try {
      const result = work()
      database.exec('commit')
      for (const then of onCommit) then()
      return result
    } catch (error) {
      if (database.isTransaction) database.exec('rollback')
      throw error
    }
  }

  const get = <T>(row: z.ZodType<T>, sql: string, ...values: SQLInputValue[]): T | undefined =>
    row.optional().parse(prepare(sql).get(...values))

  const buildInsert = (table: string, names: readonly string[]): string =>
    `insert into ${table} (${names.join(', ')}) values (${names.map(() => '?').join(', ')})`

  return {
    /** The file, or `:memory:`. */
    path,
    /** Signs cursors and digests of requests; stored with the data, so that both survive a restart. */
    secret: readSecret(database),
    prepare,
    transaction,
    all: <T>(row: z.ZodType<T>, sql: string, ...values: SQLInputValue[]): T[] =>
      z.array(row).parse(prepare(sql).all(...values)),
    get,
    /** Returns the number of changed rows. */
    run: (sql: string, ...values: SQLInputValue[]): number => Number(prepare(sql).run(...values).changes),
    /** Inserts one row, its values by column. */
    insert(table: string, row: Record<string, SQLInputValue>): void {
      prepare(buildInsert(table, Object.keys(row))).run(...Object.values(row))
    },
    /** Inserts one row and returns it as it is stored. */
    create<T>(schema: z.ZodType<T>, table: string, row: Record<string, SQLInputValue>): T {
      const sql = `${buildInsert(table, Object.keys(row))} returning *`
      return schema.parse(prepare(sql).get(...Object.values(row)))
    },
    /** Sets columns of the row with this id. */
    update(table: string, id: string, columns: Record<string, SQLInputValue>): void {
      const set = Object.keys(columns).map((name) => `${name} = ?`)
      prepare(`update ${table} set ${set.join(', ')} where id = ?`).run(...Object.values(columns), id)
    },
    /** Runs `work` once the current transaction is committed, never after a rollback. */
    afterCommit(work: () => void): void {
      if (database.isTransaction) onCommit.push(work)
      else work()
    },
    close: (): void => database.close(),
    [Symbol.dispose]: (): void => database.close(),
  }
}

/** The sort key of every list: `createdAt` (ms since the epoch), then `id`, ascending. */
export interface ListKey {
  createdAt: number
  id: string
}

/** Before every record. */
export const FIRST: ListKey = {createdAt: Number.MIN_SAFE_INTEGER, id: ''}
