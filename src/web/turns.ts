import pLimit, {type LimitFunction} from 'p-limit'
import {newError} from '../core/errors.ts'

/**
 * Places for all callers together, and for each of them.
 *
 * @returns takes a place for a caller, and returns what frees it and says whether it was the caller's last, or undefined if all are taken
 */
export function createPlaces({all, each}: {all: number; each: number}) {
  /** The caller on each place that is taken. */
  const taken: unknown[] = []
  return (caller: unknown): (() => boolean) | undefined => {
    if (taken.length >= all || taken.filter((one) => one === caller).length >= each) return undefined
    taken.push(caller)
    return () => {
      taken.splice(taken.indexOf(caller), 1)
      return !taken.includes(caller)
    }
  }
}

/**
 * Lets so much run at once; the rest waits, and callers take turns, however much one of them asks. One caller never has all places
 * of several, so that others need not wait for its end. Who hangs up while waiting gives its place back.
 *
 * @returns runs work when it is the caller's turn, which `signal` ends before
 * @throws DeferredError `WEB_BUSY` where too many wait, in all or of one caller
 */
export function createTurns({running, waiting, each}: {running: number; waiting: number; each: number}) {
  const enter = createPlaces({all: running + waiting, each})
  const all = pLimit(running)
  /** By caller: the next of its work waits among that of all only when one before it has ended. */
  const callers = new Map<unknown, LimitFunction>()
  return async <T>(caller: unknown, signal: AbortSignal, work: () => Promise<T>): Promise<T> => {
    const leave = enter(caller)
    if (!leave)
      throw newError('WEB_BUSY', 'Too much is asked for at this moment: expected fewer questions at once.')
    const own = callers.get(caller) ?? pLimit(Math.max(1, running - 1))
    callers.set(caller, own)
    const {promise: gone, reject} = Promise.withResolvers<never>()
    const giveUp = () => reject(signal.reason)
    signal.addEventListener('abort', giveUp)
    const begin = async () => {
      signal.throwIfAborted()
      signal.removeEventListener('abort', giveUp)
      return await work()
    }
    try {
      signal.throwIfAborted()
      return await Promise.race([own(() => all(begin)), gone])
    } finally {
      if (leave()) callers.delete(caller)
    }
  }
}
