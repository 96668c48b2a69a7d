import {messageOf} from '../errors.ts'
import type {Database} from './database.ts'

/** Why a piece of work was cut short: it took too long, needed too much memory, or the process was asked to stop. */
export type Cut = 'time' | 'memory' | 'stopped'

/** How often what is interrupted is interrupted again. */
const REPEAT_MS = 20

/**
 * Interrupts what runs on connections, again and again until it is cleared: an interrupt between two statements is lost.
 *
 * @param list the connections, asked for each time
 */
export function interruptUntilCleared(list: () => readonly Pick<Database, 'connection'>[]): NodeJS.Timeout {
  const interrupt = () => {
    for (const {connection} of list()) connection.interrupt()
  }
  interrupt()
  return setInterval(interrupt, REPEAT_MS)
}

/**
 * Runs statements, interrupting the one under way when they take longer than `limitMs` or when the process is asked to
 * stop.
 *
 * @param explain words what was cut short; every other failure is thrown as it is
 */
export async function withinLimits<T>(
  db: Database,
  limits: {limitMs: number; signal: AbortSignal},
  work: () => Promise<T>,
  explain: (cut: Cut, cause: unknown) => Error,
): Promise<T> {
  const {limitMs, signal} = limits
  let cut: Cut | undefined
  let repeat: NodeJS.Timeout | undefined
  const interrupt = (reason: Cut) => {
    cut ??= reason
    repeat ??= interruptUntilCleared(() => [db])
  }
  const onStop = () => interrupt('stopped')
  if (signal.aborted) throw explain('stopped', signal.reason)
  const timer = setTimeout(() => interrupt('time'), limitMs)
  signal.addEventListener('abort', onStop, {once: true})
  try {
    return await work()
  } catch (error) {
    if (cut !== undefined && /interrupt/i.test(messageOf(error))) throw explain(cut, error)
    if (/^Out of Memory Error/i.test(messageOf(error))) throw explain('memory', error)
    throw error
  } finally {
    clearTimeout(timer)
    clearInterval(repeat)
    signal.removeEventListener('abort', onStop)
  }
}
