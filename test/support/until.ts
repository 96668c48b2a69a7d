import {setTimeout as delay} from 'node:timers/promises'

/** What `read` returns once that is something: asked again and again, and ended by nothing but the suite's own limit. */
export async function until<T>(
  read: () => T | Promise<T>,
): Promise<Exclude<T, undefined | null | false | 0 | ''>> {
  for (;;) {
    const found = await read()
    if (found) return found as Exclude<T, undefined | null | false | 0 | ''>
    await delay(20)
  }
}
