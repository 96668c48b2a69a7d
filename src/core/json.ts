import type {z} from 'zod'
import {type LoantapeError, messageOf} from './errors.ts'

/** Holds the paths of repeated names below an object. */
const REPEATED = Symbol('repeated')
/** Records sit no deeper than this in an answer. */
const MARKED_DEPTH = 4

/**
 * The value of a JSON text; undefined if it is not JSON. If an object repeats a name, the last value wins, and
 * {@link listRepeated} lists the name.
 */
export function parseJson(text: string): unknown {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return undefined
  }
  if (countNames(text) !== countMembers(value)) markRepeated(value, findRepeated(text))
  return value
}

/** The paths of names that an object repeats within a value of {@link parseJson}; a copy with `...` keeps them. */
export function listRepeated(value: unknown): readonly (string | number)[][] {
  return isObject(value) ? (Reflect.get(value, REPEATED) ?? []) : []
}

/** Makes the error of a problem. */
export type Refuse = (problem: string, cause?: unknown) => LoantapeError

/**
 * The value of a JSON file that people write: nothing of it is lost unsaid, as a name's first value would be and the name
 * `__proto__`, which no schema keeps.
 */
export function parseWritten(text: string, refuse: Refuse): unknown {
  let value: unknown
  try {
    value = JSON.parse(text.replace(/^\uFEFF/, ''))
  } catch (cause) {
    const [place] = /line \d+ column \d+/.exec(messageOf(cause)) ?? []
    throw refuse(place === undefined ? 'expected JSON' : `expected JSON at ${place}`, cause)
  }
  const [twice] = findRepeated(text)
  if (twice) throw refuse(`${twice.join('.')}: expected each name once in an object`)
  if (/"__proto__"\s*:/.test(text)) throw refuse('__proto__: expected another name')
  return value
}

/** Counts what looks like member names in a JSON text: 0.3 µs per record, a tenth of a full scan. */
function countNames(text: string): number {
  let names = 0
  for (let at = text.indexOf(':'); at !== -1; at = text.indexOf(':', at + 1)) {
    let before = at - 1
    while (' \t\n\r'.includes(text.charAt(before)) && before > 0) before -= 1
    if (text.charAt(before) === '"') names += 1
  }
  return names
}

function countMembers(value: unknown): number {
  let members = 0
  const left = [value]
  while (left.length > 0) {
    const one = left.pop()
    if (Array.isArray(one)) {
      for (const part of one) if (typeof part === 'object') left.push(part)
    } else if (isObject(one)) {
      for (const name in one) {
        members += 1
        if (typeof one[name] === 'object') left.push(one[name])
      }
    }
  }
  return members
}

function findRepeated(text: string): (string | number)[][] {
  const found: (string | number)[][] = []
  const open: {names: Set<string> | undefined; at: string | number}[] = []
  for (let at = 0; at < text.length; at += 1) {
    const sign = text[at]
    const inner = open.at(-1)
    if (sign === '{') open.push({names: new Set(), at: ''})
    else if (sign === '[') open.push({names: undefined, at: 0})
    else if (sign === '}' || sign === ']') open.pop()
    else if (sign === ',' && typeof inner?.at === 'number') inner.at += 1
    else if (sign === '"') {
      const end = findTextEnd(text, at)
      if (inner?.names && text[skipBlanks(text, end)] === ':') {
        inner.at = String(JSON.parse(text.slice(at, end)))
        if (inner.names.has(inner.at)) found.push(open.slice(0, MARKED_DEPTH + 1).map((one) => one.at))
        inner.names.add(inner.at)
      }
      at = end - 1
    }
  }
  return found
}

function markRepeated(value: unknown, paths: readonly (string | number)[][]): void {
  for (const path of paths) {
    let holder = value
    for (const [depth, name] of path.entries()) {
      if (typeof holder !== 'object' || holder === null) break
      if (!Array.isArray(holder)) Reflect.set(holder, REPEATED, [...listRepeated(holder), path.slice(depth)])
      holder = Reflect.get(holder, name)
    }
  }
}

/** Whether a JSON value is an object. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The value at a path; undefined if the path leads nowhere. */
export function findValue(value: unknown, path: readonly string[]): unknown {
  let found = value
  for (const name of path) {
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, name)) return undefined
    found = Reflect.get(found, name)
  }
  return found
}

/**
 * The problems that a schema found in a file, each with its path, never with a value, which could be a misplaced secret.
 *
 * @param whole path shown for a problem of the whole file
 */
export function describeIssues({issues}: z.ZodError, whole = '(file)'): string[] {
  return issues.map(({path, message}) => `${path.join('.') || whole}: ${message}`)
}

/**
 * The text of a value within a JSON text, unchanged: with all digits of its numbers and the order of its names. If a name is
 * repeated, the last value wins, as in `JSON.parse`.
 *
 * @param text valid JSON
 * @param path names of members, positions of elements
 * @returns undefined if the path leads nowhere
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

/** The start of a member or element of a value. */
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

/** The end of a value; not recursive, since a value may nest deeper than the call stack. */
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
