import {hash} from 'node:crypto'
import {readdirSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {newError} from '../errors.ts'
import {type Database, inTransaction} from './database.ts'

/** The folder of the warehouse's own migrations. */
export const MIGRATIONS_DIR = join(import.meta.dirname, '../../sql/migrations')

const migrationRow = z.object({name: z.string(), sha256: z.string()})

/** One file of migrations. */
interface Migration {
  name: string
  sql: string
  sha256: string
}

/**
 * Brings an attached database to the newest schema: each file of `sql/migrations` once, in order, in a transaction of
 * its own.
 *
 * @param dir another folder of migrations
 * @throws what {@link listPendingMigrations} does
 */
export async function migrate(db: Database, catalog: string, dir?: string): Promise<void> {
  await db.run(
    `create table if not exists ${catalog}.main.migration (name varchar not null, sha256 varchar not null)`,
  )
  const pending = await listPendingMigrations(db, catalog, dir)
  for (const {name, sql, sha256} of pending) {
    await db.run(`use ${catalog}.main`)
    await inTransaction(db, async () => {
      await db.run(sql)
      await db.run(`insert into ${catalog}.main.migration values ($1, $2)`, [name, sha256])
    })
    await db.run('use memory.main')
  }
  if (pending.length > 0) await db.run(`checkpoint ${catalog}`)
}

/**
 * The migrations an attached database has not had yet, in order.
 *
 * @throws UnexpectedError `DATA_NEWER` when it has one this version does not know, `MIGRATION_CHANGED` when one it
 * has was another file then
 */
export async function listPendingMigrations(
  db: Database,
  catalog: string,
  dir: string = MIGRATIONS_DIR,
): Promise<Migration[]> {
  const applied = (await isEmpty(db, catalog))
    ? []
    : await db.all(migrationRow, `select name, sha256 from ${catalog}.main.migration order by name`)
  const known = new Map(readMigrations(dir).map((migration) => [migration.name, migration]))
  for (const {name, sha256} of applied) {
    const migration = known.get(name)
    if (!migration)
      throw newError(
        'DATA_NEWER',
        `Migration '${name}' in the warehouse: this version of loantape does not know it.`,
      )
    if (migration.sha256 !== sha256)
      throw newError(
        'MIGRATION_CHANGED',
        `Migration '${name}' in the warehouse: expected the file it was made with, whose sha256 it keeps; this installation's is another.`,
        {
          next: `Bring back sql/migrations/${name} as it was released; what has to change goes into the next migration.`,
        },
      )
    known.delete(name)
  }
  return [...known.values()]
}

/** Whether there is no table at all, as a run leaves it that failed as it made the file. */
async function isEmpty(db: Database, catalog: string): Promise<boolean> {
  return (await db.all(z.unknown(), 'from duckdb_tables() where database_name = $1', [catalog])).length === 0
}

function readMigrations(dir: string): Migration[] {
  const names = readdirSync(dir).filter((file) => file.endsWith('.sql'))
  return names.sort().map((name) => {
    const sql = readFileSync(join(dir, name), 'utf8')
    return {name, sql, sha256: hash('sha256', sql)}
  })
}
