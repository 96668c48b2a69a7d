import type {z} from 'zod'

/** The value of a JSON text; undefined, which no JSON text stands for, where it is none. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Whether a JSON value is an object. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** What stands in a value where these names lead; undefined where they lead nowhere. */
export function findValue(value: unknown, path: readonly string[]): unknown {
  let found = value
  for (const name of path) {
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, name)) return undefined
    found = Reflect.get(found, name)
  }
  return found
}

/**
 * What a schema found wrong in a file, place by place; zod never repeats a value, which could be a secret in the wrong place.
 *
 * @param whole stands for the place of what is wrong with the whole
 */
export function describeIssues({issues}: z.ZodError, whole = '(file)'): string[] {
  return issues.map(({path, message}) => `${path.join('.') || whole}: ${message}`)
}
