import {z} from 'zod'
import {newError} from '../errors.ts'
import type {World} from '../types.ts'
import {datePresent, holderRow, isHolderAlive, markHolder} from './holder.ts'
import {inStateTransaction, type StateDb} from './state-db.ts'

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
  stateDb: StateDb,
  world: World,
  name: string = WAREHOUSE,
): LockHolder | undefined {
  const holder = stateDb.first(lockRow, 'select * from lock where name = ?', [name])
  return holder && isHolderAlive(holder, world.realClock.now()) ? holder : undefined
}

/**
 * Takes the warehouse, or what is named, for one run, at once or not at all; a dead holder's lock is taken over.
 *
 * @throws LockedError `RUN_IN_PROGRESS` naming the holder's pid, start and progress
 */
export function acquireLock(
  stateDb: StateDb,
  run: {runId: string; command: string; name?: string},
  world: World,
): Lock {
  const {name = WAREHOUSE} = run
  datePresent(stateDb, 'lock', world.realClock.now())
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
      stateDb.run('update lock set progress = ?, heartbeat_at = ? where run_id = ?', [
        progress,
        world.realClock.now(),
        run.runId,
      ])
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
      stateDb.run('delete from lock where run_id = ?', [run.runId])
    },
  }
}
