import type {JobRun} from '../state/job-runs.ts'
import type {Job} from './job.ts'

const MINUTE_MS = 60_000
/** Between an attempt that failed and the next. */
export const LONGEST_PAUSE_MS = 30 * MINUTE_MS
/** An attempt that kills its process each time is not repeated for ever. */
const MOST_CRASHES = 3
/** A slot that others hold up waits this long at least, whatever its grace. */
const PATIENCE_MS = 60 * MINUTE_MS

/** Until when a slot held up by other runs may start, ms since the epoch. */
export function lastStartOf({graceMinutes}: Job, slot: string): number {
  return Date.parse(slot) + Math.max(graceMinutes * MINUTE_MS, PATIENCE_MS)
}

/**
 * When an attempt that ended badly is made again, ms since the epoch; null when it is not. What waiting can fix is
 * tried again: another run held the warehouse (4), the source was not to be had (6, within the grace), the process was
 * stopped or killed. Everything else wants somebody to look.
 *
 * @param end null for a process that was gone without a word
 */
export function decideRetry(
  job: Job | undefined,
  {slot, attempt}: Pick<JobRun, 'slot' | 'attempt'>,
  end: {exitCode: number; errorCode: string} | null,
  now: number,
): number | null {
  if (!job || slot === null) return null
  if (end === null) return attempt < MOST_CRASHES ? now : null
  if (end.errorCode === 'INTERRUPTED') return now
  if (end.exitCode === 4) return beforeOrNever(now + MINUTE_MS, lastStartOf(job, slot))
  if (end.exitCode !== 6) return null
  const pauseMs = Math.min(MINUTE_MS * 2 ** (attempt - 1), LONGEST_PAUSE_MS)
  return beforeOrNever(now + pauseMs, Date.parse(slot) + job.graceMinutes * MINUTE_MS)
}

function beforeOrNever(instant: number, last: number): number | null {
  return instant <= last ? instant : null
}
