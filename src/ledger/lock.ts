import {z} from 'zod'
import {newError} from '../errors.ts'
import type {World} from '../types.ts'
import {holderRow, isHolderAlive, markHolder} from './holder.ts'
import type {Ledger} from './ledger.ts'

const HEARTBEAT_MS = 5_000

/** Who holds the warehouse, or something else that one process at a time may hold. */
export type LockHolder = z.output<typeof lockRow>
const lockRow = z.object({
  run_id: z.string(),
  command: z.string(),
  ...holderRow.shape,
  /** ISO 8601, real clock. */
  started_at: z.string(),
  progress: z.string(),
})

/** Held while nobody else may hold the same; disposing it gives it back. */
export interface Lock extends Disposable {
  /** What other processes are told this run is doing. */
  setProgress(text: string): void
}

const WAREHOUSE = 'warehouse'

/** Who holds the warehouse, or what is named, now, if anybody alive does. */
export function findLockHolder(
  ledger: Ledger,
  world: World,
  name: string = WAREHOUSE,
): LockHolder | undefined {
  const row = ledger.db.prepare('select * from lock where name = ?').get(name)
  const holder = row && lockRow.parse(row)
  return holder && isHolderAlive(holder, world.realClock.now()) ? holder : undefined
}

/**
 * Takes the warehouse, or what is named, for one run, at once or not at all; a dead holder's lock is taken over.
 *
 * @throws LockedError `RUN_IN_PROGRESS` naming the holder's pid, start and progress
 */
export function acquireLock(
  ledger: Ledger,
  run: {runId: string; command: string; name?: string},
  world: World,
): Lock {
  const {db} = ledger
  const {name = WAREHOUSE} = run
  db.exec('begin immediate')
  try {
    const holder = findLockHolder(ledger, world, name)
    if (holder)
      throw newError(
        'RUN_IN_PROGRESS',
        `Another run holds the ${name}: ${holder.command}, pid ${holder.pid} on ${holder.host}, started ${holder.started_at}, ${holder.progress}.`,
      )
    const mark = markHolder(world.realClock.now())
    db.prepare(
      `insert or replace into lock
       (name, run_id, command, pid, host, process_started, started_at, heartbeat_at, progress)
       values (?, ?, ?, ?, ?, ?, ?, ?, 'starting')`,
    ).run(
      name,
      run.runId,
      run.command,
      mark.pid,
      mark.host,
      mark.process_started,
      new Date(mark.heartbeat_at).toISOString(),
      mark.heartbeat_at,
    )
    db.exec('commit')
  } catch (error) {
    db.exec('rollback')
    throw error
  }
  const update = db.prepare('update lock set progress = ?, heartbeat_at = ? where run_id = ?')
  let progress = 'starting'
  function beat(): void {
    try {
      update.run(progress, world.realClock.now(), run.runId)
    } catch (error) {
      // Thrown from a timer it would end the process; a full disk is the business of the run's own writes.
      world.log.warn({err: error}, 'the heartbeat could not be written')
    }
  }
  const heartbeat = setInterval(beat, HEARTBEAT_MS)
  heartbeat.unref()
  return {
    setProgress(text) {
      progress = text
      beat()
    },
    [Symbol.dispose]() {
      clearInterval(heartbeat)
      db.prepare('delete from lock where run_id = ?').run(run.runId)
    },
  }
}
