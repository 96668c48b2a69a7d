import {setTimeout as delay} from 'node:timers/promises'

/**
 * Polls `read` until it returns a truthy value, and returns that; only the suite's own limit ends it. It asks less and less
 * often, down to ten times a second, because others need the processor for what is awaited.
 */
export async function until<T>(
  read: () => T | Promise<T>,
): Promise<Exclude<T, undefined | null | false | 0 | ''>> {
  for (let pauseMs = 20; ; pauseMs = Math.min(pauseMs * 1.1, 100)) {
    const found = await read()
    if (found) return found as Exclude<T, undefined | null | false | 0 | ''>
    await delay(pauseMs)
  }
}
