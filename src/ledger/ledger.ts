import {DatabaseSync} from 'node:sqlite'

/** The run ledger: a SQLite file that stays readable while a run holds the warehouse. */
export interface Ledger extends Disposable {
  readonly db: DatabaseSync
}

/** Append-only: never edit a released entry, add the next. */
const MIGRATIONS = [
  `create table run (
     run_id text primary key,
     command text not null,
     pid integer not null,
     started_at text not null,
     ended_at text,
     exit_code integer,
     outcome text,
     error_code text,
     error text,
     summary text
   ) strict;
   create table lock (
     name text primary key,
     run_id text not null,
     command text not null,
     pid integer not null,
     host text not null,
     process_started text,
     started_at text not null,
     heartbeat_at integer not null,
     progress text not null
   ) strict;
   create table learnt_rate (
     base_url text primary key,
     rate_per_second real not null,
     learnt_at integer not null
   ) strict;`,
  `create table delivery (
     target text not null,
     profile text not null,
     batch_id text not null,
     attempts integer not null,
     started_at text not null,
     delivered_at text,
     error text,
     primary key (target, profile, batch_id)
   ) strict;
   create table delivered_file (
     target text not null,
     profile text not null,
     batch_id text not null,
     name text not null,
     sha256 text not null,
     primary key (target, profile, batch_id, name)
   ) strict;`,
]

/** Opens the ledger and brings its tables up to date; waits up to five seconds for another writer. */
export function openLedger(path: string): Ledger {
  const db = new DatabaseSync(path, {timeout: 5000})
  try {
    db.exec('pragma journal_mode = wal; pragma synchronous = full')
    migrateLedger(db)
  } catch (error) {
    db.close()
    throw error
  }
  return {
    db,
    [Symbol.dispose]() {
      db.close()
    },
  }
}

function migrateLedger(db: DatabaseSync): void {
  db.exec('begin immediate')
  try {
    const version = Number(db.prepare('pragma user_version').get()?.user_version ?? 0)
    for (const sql of MIGRATIONS.slice(version)) db.exec(sql)
    db.exec(`pragma user_version = ${MIGRATIONS.length}`)
    db.exec('commit')
  } catch (error) {
    db.exec('rollback')
    throw error
  }
}
