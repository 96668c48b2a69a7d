import {readFileSync} from 'node:fs'
import {hostname} from 'node:os'
import {z} from 'zod'
import {codeOf} from '../errors.ts'
import {isProcessAlive} from '../process.ts'
import type {StateDb} from './state-db.ts'

/** A holder on another machine is taken for dead after this long without a heartbeat. */
const STALE_AFTER_MS = 60_000

/** A process that holds something in the state database. */
export type Holder = z.output<typeof holderRow>
export const holderRow = z.object({
  pid: z.number(),
  host: z.string(),
  /** As the kernel counts it; null where that cannot be known. */
  process_started: z.string().nullable(),
  /** ms since the epoch, real clock. */
  heartbeat_at: z.number(),
})

/** A process of this machine as a holder; this one by default. */
export function markHolder(now: number, pid: number = process.pid): Holder {
  return {pid, host: hostname(), process_started: readProcessStart(pid), heartbeat_at: now}
}

/** When the process with this pid started, as the kernel counts it; null where that cannot be known. */
function readProcessStart(pid: number): string | null {
  try {
    // The command, field 2, may hold spaces and parentheses; the start time is field 22.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null
  } catch (error) {
    if (['ENOENT', 'ESRCH', 'EACCES'].includes(codeOf(error))) return null
    throw error
  }
}

/** Whether the process that holds something still runs. */
export function isHolderAlive(holder: Holder, now: number): boolean {
  if (holder.host !== hostname()) return now - holder.heartbeat_at < STALE_AFTER_MS
  if (!isProcessAlive(holder.pid)) return false
  // A pid is used again by the system: the same number started at another time is another process.
  return holder.process_started === null || holder.process_started === readProcessStart(holder.pid)
}

/** Counts a heartbeat that comes from a clock ahead of ours as of now: a living holder's beats again, a dead one's grows old. */
export function datePresent(stateDb: StateDb, table: 'lock' | 'job_run', now: number): void {
  stateDb.run(`update ${table} set heartbeat_at = ?1 where heartbeat_at > ?1`, [now])
}
