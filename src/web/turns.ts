import {addAbortListener} from 'node:events'
import pLimit, {type LimitFunction} from 'p-limit'
import {newError} from '../core/errors.ts'

/**
 * Limits places in total and for each caller. Taking one returns undefined if none is free, or a function that frees it, which
 * returns whether it was the caller's last.
 */
export function createPlaces({all, each}: {all: number; each: number}) {
  /** The caller on each place. */
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
 * Callers alternate, however much one of them asks; no caller takes all running places. A place is kept until `work` ends, and
 * until `until` if that is later; aborting while waiting frees it.
 * @throws DeferredError `WEB_BUSY` if too much is waiting, in total or for one caller
 */
export function createTurns({running, waiting, each}: {running: number; waiting: number; each: number}) {
  const enter = createPlaces({all: running + waiting, each})
  const all = pLimit(running)
  /** By caller: its next work queues only after its previous work has ended. */
  const callers = new Map<unknown, LimitFunction>()
  return async <T>(
    caller: unknown,
    signal: AbortSignal,
    work: () => Promise<T>,
    until?: Promise<unknown>,
  ): Promise<T> => {
    signal.throwIfAborted()
    const leave = enter(caller)
    if (!leave)
      throw newError('WEB_BUSY', 'Too much is asked for at this moment: expected fewer questions at once.')
    const own = callers.get(caller) ?? pLimit(Math.max(1, running - 1))
    callers.set(caller, own)
    const {promise: gone, reject} = Promise.withResolvers<never>()
    using listening = addAbortListener(signal, () => reject(signal.reason))
    const begin = async () => {
      signal.throwIfAborted()
      listening[Symbol.dispose]()
      return await work()
    }
    try {
      return await Promise.race([own(() => all(begin)), gone])
    } finally {
      void Promise.allSettled([until]).then(() => leave() && callers.delete(caller))
    }
  }
}
