import {z} from 'zod'
import {codeOf, explainError, newError} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import {HOST, isProcessAlive, readProcessStart} from '../core/process.ts'
import {countOf, type World} from '../core/types.ts'
import {fenceWrites, openStateDb, type StateDb} from './state-db.ts'

/** After this long without a heartbeat, a holder on another machine counts as dead. */
const STALE_AFTER_MS = 60_000

export type Holder = z.output<typeof holderRow>
export const holderRow = z.object({
  pid: z.number(),
  host: z.string(),
  /** In the kernel's units; null if unknown. */
  process_started: z.string().nullable(),
  /** ms since the epoch, real clock. */
  heartbeat_at: z.number(),
})

export function markHolder(now: number, pid: number = process.pid): Holder {
  return {pid, host: HOST, process_started: readProcessStart(pid), heartbeat_at: now}
}

export function isHolderAlive(holder: Holder, now: number): boolean {
  if (holder.host !== HOST) return now - holder.heartbeat_at < STALE_AFTER_MS
  return isProcessAlive(holder.pid, holder.process_started)
}

const HEARTBEAT_MS = 5_000

const lockRow = z.object({
  run_id: z.string(),
  command: z.string(),
  ...holderRow.shape,
  /** ISO 8601, real clock. */
  started_at: z.string(),
  progress: z.string(),
})

const WAREHOUSE = 'warehouse'

/** Undefined if that process is dead. */
export function findLockHolder(stateDb: StateDb, world: World, name: string = WAREHOUSE) {
  const holder = stateDb.first(lockRow, 'select * from lock where name = ?', [name])
  return holder && isHolderAlive(holder, world.realClock.now()) ? holder : undefined
}

/**
 * Does not wait. The lock of a dead holder is taken over.
 * @throws LockedError `RUN_IN_PROGRESS` naming the holder's pid, start and progress
 */
export function acquireLock(
  stateDb: StateDb,
  run: {runId: string; command: string; name?: string},
  world: World,
) {
  const {name = WAREHOUSE} = run
  // A heartbeat in the future is reset to now: a living holder renews it, a dead one becomes stale.
  stateDb.run('update lock set heartbeat_at = ?1 where heartbeat_at > ?1', [world.realClock.now()])
  stateDb.transaction(() => {
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
      // Only a warning: an error in a timer would end the process, and the run's own writes report a full disk.
      world.log.warn({err: error}, 'the heartbeat could not be written')
    }
  }
  const heartbeat = setInterval(beat, HEARTBEAT_MS)
  heartbeat.unref()
  return {
    setProgress(text: string): void {
      progress = text
      beat()
    },
    [Symbol.dispose]() {
      clearInterval(heartbeat)
      stateDb.run('delete from lock where run_id = ?', [run.runId])
    },
  }
}

/** Instants are ISO 8601 of the real clock. */
export type Run = z.output<typeof runRow>
const runRow = z.object({
  run_id: z.string(),
  command: z.string(),
  pid: z.number(),
  started_at: z.string(),
  ended_at: z.string().nullable(),
  exit_code: z.number().nullable(),
  outcome: z.string().nullable(),
  error_code: z.string().nullable(),
  error: z.string().nullable(),
  /** What the command prints with `--json`. */
  summary: z.string().nullable(),
})

/** Sortable: the real time, then six random hex digits. */
function createRunId(world: World): string {
  const time = new Date(world.realClock.now()).toISOString().replace(/[-:]/g, '').replace(/\..*/, 'Z')
  const digits = Math.floor(world.random() * 0x1000000).toString(16)
  return `${time}-${digits.padStart(6, '0')}`
}

/** The run in progress, which holds the warehouse. */
export interface CurrentRun {
  runId: string
  stateDb: StateDb
  /** Its progress is seen by other processes, too. */
  world: World
}

const NOTED_MS = 1000

function watch(lock: ReturnType<typeof acquireLock>, world: World): World {
  let notedAt = 0
  const onProgress: World['onProgress'] = (progress) => {
    world.onProgress(progress)
    const now = world.realClock.now()
    // The clock may have been set back.
    if (Math.abs(now - notedAt) < NOTED_MS) return
    notedAt = now
    lock.setProgress([progress.step, countOf(progress)].filter(Boolean).join(': '))
  }
  return {...world, onProgress}
}

/**
 * Runs `work` as the only run that may write the warehouse, and records in the state database how it ended.
 * @throws LockedError `RUN_IN_PROGRESS`, also if another run has taken over from this one; whatever `work` throws
 */
export async function withRun<T extends {outcome: string}>(
  path: string,
  command: string,
  world: World,
  work: (run: CurrentRun) => Promise<T>,
): Promise<T> {
  using stateDb = openStateDb(path)
  const runId = createRunId(world)
  using lock = acquireLock(stateDb, {runId, command}, world)
  fenceWrites(stateDb, runId)
  const now = () => new Date(world.realClock.now()).toISOString()
  stateDb.insert('run', {run_id: runId, command, pid: process.pid, started_at: now()})
  const finish = (how: Record<string, string | number>) =>
    stateDb.update('run', {run_id: runId}, {ended_at: now(), ...how})
  try {
    const result = await work({runId, stateDb, world: watch(lock, world)})
    // What checks found stands in the release: with it, the syncs of ten years would fill the state database and its backups.
    const summary = JSON.stringify(result, (name, value) => (name === 'results' ? undefined : value))
    finish({exit_code: 0, outcome: result.outcome, summary})
    return result
  } catch (error) {
    const {code, exitCode, message} = explainError(error)
    const how = {exit_code: exitCode, outcome: 'failed', error_code: code, error: scrubSecrets(message)}
    recordFailure(() => finish(how), world)
    throw error
  }
}

/** Records how failed work ended. If that fails as well, the first error counts, except after another run has taken over. */
export function recordFailure(record: () => void, {log}: Pick<World, 'log'>): void {
  try {
    record()
  } catch (error) {
    if (codeOf(error) === 'RUN_IN_PROGRESS') throw error
    log.warn({err: error}, 'how the run ended could not be recorded')
  }
}

/** Runs in the order they began, newest first, even if the clock was set back. */
export function listRuns(stateDb: StateDb, limit: number): Run[] {
  return stateDb.all(runRow, 'select * from run order by rowid desc limit ?', [limit])
}

/** Ended or not. `where` is an SQL condition. */
export const findLastRun = (stateDb: StateDb, command: string, where = 'true'): Run | undefined =>
  stateDb.first(runRow, `select * from run where command = ? and ${where} order by rowid desc limit 1`, [
    command,
  ])

export const findLastSuccess = (stateDb: StateDb, command: string) =>
  findLastRun(stateDb, command, 'exit_code = 0')

/** Undefined if it does not fit the schema. */
export const summaryOf = <T>(run: Pick<Run, 'summary'> | undefined, schema: z.ZodType<T>): T | undefined =>
  schema.safeParse(JSON.parse(run?.summary ?? 'null')).data

/**
 * The latest finished run of the command that made a job fail, except runs that were locked out or stopped. That command is the
 * last one of the failed attempt that failed with the same error, was interrupted, or died.
 */
export function findRunSince(
  stateDb: StateDb,
  attempt: {started_at: string | null; ended_at: string | null; error_code: string | null},
): Run | undefined {
  return stateDb.first(
    runRow,
    `with failed as (
       select rowid as place, command from run
       where coalesce(ended_at, started_at) between ?1 and ?2 and exit_code is not 0
         and (exit_code is null or error_code is ?3 or error_code = 'INTERRUPTED')
       order by rowid desc limit 1
     )
     select run.* from run join failed using (command)
     where run.rowid > place and exit_code is not null and exit_code <> 4 and error_code is not 'INTERRUPTED'
     order by run.rowid desc limit 1`,
    [attempt.started_at, attempt.ended_at, attempt.error_code],
  )
}
