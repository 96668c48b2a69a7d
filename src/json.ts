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

/**
 * The text of a value within a JSON text, as it stands there: its numbers have all their digits, its names their order. Of a name
 * that comes twice the last counts, as in `JSON.parse`.
 *
 * @param text is JSON
 * @param path names of members, positions of elements
 * @returns undefined where the path leads nowhere
 */
export function sliceJson(text: string, path: readonly (string | number)[]): string | undefined {
  let start = skipBlanks(text, 0)
  for (const name of path) {
    const found = findPart(text, start, name)
    if (found === undefined) return undefined
    start = found
  }
  return text.slice(start, findEnd(text, start))
}

/** Where the member or element of a value begins. */
function findPart(text: string, start: number, name: string | number): number | undefined {
  const isList = text[start] === '['
  if (isList !== (typeof name === 'number') || (!isList && text[start] !== '{')) return undefined
  let [found, position]: [number | undefined, number] = [undefined, 0]
  let at = skipBlanks(text, start + 1)
  while (text[at] !== ']' && text[at] !== '}') {
    let key: unknown = position
    if (!isList) {
      const end = findEnd(text, at)
      key = JSON.parse(text.slice(at, end))
      at = skipBlanks(text, skipBlanks(text, end) + 1)
    }
    if (key === name) found = at
    if (found !== undefined && isList) return found
    at = skipBlanks(text, findEnd(text, at))
    if (text[at] === ',') at = skipBlanks(text, at + 1)
    position += 1
  }
  return found
}

function skipBlanks(text: string, start: number): number {
  let at = start
  while (at < text.length && ' \t\n\r'.includes(text[at] ?? '')) at += 1
  return at
}

const SCALAR = /[^\s,\]}]*/y

/** Where a value ends; counts levels, since a value may nest deeper than calls can. */
function findEnd(text: string, start: number): number {
  if (text[start] === '"') return findTextEnd(text, start)
  if (text[start] !== '{' && text[start] !== '[') {
    SCALAR.lastIndex = start
    return start + (SCALAR.exec(text)?.[0].length ?? 0)
  }
  let level = 0
  for (let at = start; at < text.length; at += 1) {
    const sign = text[at]
    if (sign === '"') at = findTextEnd(text, at) - 1
    else if (sign === '{' || sign === '[') level += 1
    else if (sign === '}' || sign === ']') level -= 1
    if (level === 0) return at + 1
  }
  return text.length
}

function findTextEnd(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at += 1) {
    if (text[at] === '\\') at += 1
    else if (text[at] === '"') return at + 1
  }
  return text.length
}
