import {hostname} from 'node:os'
import {z} from 'zod'
import {newError} from '../core/errors.ts'
import {hasOtherStart, isProcessAlive, readProcessStart} from '../core/process.ts'
import type {World} from '../core/types.ts'
import {inStateTransaction, type StateDb} from './state-db.ts'

/** A holder on another machine is taken for dead after this long without a heartbeat. */
const STALE_AFTER_MS = 60_000

/** A process that holds a lock or a run in the state database. */
export type Holder = z.output<typeof holderRow>
export const holderRow = z.object({
  pid: z.number(),
  host: z.string(),
  /** In the kernel's units; null if unknown. */
  process_started: z.string().nullable(),
  /** ms since the epoch, real clock. */
  heartbeat_at: z.number(),
})

/** Describes a process of this machine as a holder; this one by default. */
export function markHolder(now: number, pid: number = process.pid): Holder {
  return {pid, host: hostname(), process_started: readProcessStart(pid), heartbeat_at: now}
}

/** Whether the holder still runs. */
export function isHolderAlive(holder: Holder, now: number): boolean {
  if (holder.host !== hostname()) return now - holder.heartbeat_at < STALE_AFTER_MS
  return isProcessAlive(holder.pid) && !hasOtherStart(holder.pid, holder.process_started)
}

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

/** A held lock; disposing it releases it. */
export interface Lock extends Disposable {
  /** Tells other processes what this run is doing. */
  setProgress(text: string): void
}

const WAREHOUSE = 'warehouse'

/** The living holder of the warehouse, or of the lock named. */
export function findLockHolder(
  stateDb: StateDb,
  world: World,
  name: string = WAREHOUSE,
): LockHolder | undefined {
  const holder = stateDb.first(lockRow, 'select * from lock where name = ?', [name])
  return holder && isHolderAlive(holder, world.realClock.now()) ? holder : undefined
}

/**
 * Takes the lock of the warehouse, or the one named, without waiting; the lock of a dead holder is taken over.
 *
 * @throws LockedError `RUN_IN_PROGRESS` naming the holder's pid, start and progress
 */
export function acquireLock(
  stateDb: StateDb,
  run: {runId: string; command: string; name?: string},
  world: World,
): Lock {
  const {name = WAREHOUSE} = run
  // A heartbeat in the future is set to now: a living holder beats again, a dead one grows old.
  stateDb.run('update lock set heartbeat_at = ?1 where heartbeat_at > ?1', [world.realClock.now()])
  inStateTransaction(stateDb, () => {
    const holder = findLockHolder(stateDb, world, name)
    if (holder)
      throw newError(
        'RUN_IN_PROGRESS',
        `Another run holds the ${name}: ${holder.command}, pid ${holder.pid} on ${holder.host}, started ${holder.started_at}, ${holder.progress}.`,
      )
    const mark = markHolder(world.realClock.now())
    const started_at = new Date(mark.heartbeat_at).toISOString()
    const row = {name, run_id: run.runId, command: run.command, ...mark, started_at, progress: 'starting'}
    stateDb.insert('lock', row, 'or replace')
  })
  let progress = 'starting'
  function beat(): void {
    try {
      stateDb.update('lock', {run_id: run.runId}, {progress, heartbeat_at: world.realClock.now()})
    } catch (error) {
      // An error thrown from a timer would end the process; the run's own writes report a full disk.
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
      stateDb.run('delete from lock where run_id = ?', [run.runId])
    },
  }
}
