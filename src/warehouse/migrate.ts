import {hash} from 'node:crypto'
import {readdirSync, readFileSync} from 'node:fs'
import {basename, join} from 'node:path'
import {z} from 'zod'
import {UnexpectedError} from '../errors.ts'
import {type Database, inTransaction} from './database.ts'

/** The folder of the warehouse's own migrations. */
export const MIGRATIONS_DIR: string = join(import.meta.dirname, '../../sql/migrations')

/**
 * Brings an attached database to the newest schema: each file of `sql/migrations` once, in order, in a transaction of
 * its own.
 *
 * @throws UnexpectedError `WAREHOUSE_NEWER` when the database has migrations this version does not know
 */
export async function migrate(db: Database, catalog: string): Promise<void> {
  await db.run(
    `create table if not exists ${catalog}.main.migration (name varchar not null, sha256 varchar not null)`,
  )
  const applied = await db.all(
    z.object({name: z.string(), sha256: z.string()}),
    `select name, sha256 from ${catalog}.main.migration order by name`,
  )
  const files = readdirSync(MIGRATIONS_DIR)
    .filter((file) => file.endsWith('.sql'))
    .sort()
  const unknown = applied.find(({name}) => !files.includes(name))
  if (unknown) {
    throw new UnexpectedError({
      code: 'WAREHOUSE_NEWER',
      problem: `Migration '${unknown.name}' in the warehouse: this version of loantape does not know it.`,
      kept: 'Nothing was changed.',
      next: 'Run the version that wrote this warehouse, or a later one.',
    })
  }
  const pending = files.filter((file) => !applied.some(({name}) => name === file))
  for (const file of pending) {
    const sql = readFileSync(join(MIGRATIONS_DIR, file), 'utf8')
    await db.run(`use ${catalog}.main`)
    await inTransaction(db, async () => {
      await db.run(sql)
      await db.run(`insert into ${catalog}.main.migration values ($1, $2)`, [
        basename(file),
        hash('sha256', sql),
      ])
    })
    await db.run('use memory.main')
  }
  if (pending.length > 0) await db.run(`checkpoint ${catalog}`)
}
