import {setTimeout as delay} from 'node:timers/promises'

/** Polls `read` until it returns a truthy value, and returns that; only the suite's own limit ends it. */
export async function until<T>(
  read: () => T | Promise<T>,
): Promise<Exclude<T, undefined | null | false | 0 | ''>> {
  for (;;) {
    const found = await read()
    if (found) return found as Exclude<T, undefined | null | false | 0 | ''>
    await delay(20)
  }
}
